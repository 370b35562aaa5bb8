"""Plain against speculative decoding, measured side by side.

All arms answer a prompt one after the other, in an order that turns with every prompt, each from a cold start: nothing
in the caches, nothing learned about drafts, no text seen. So what slows the machine down for a while slows all of them
down, and only ratios within one run are reported as speed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgguf.core.sampling import Sampler
from specgguf.engine import Engine, Mode
from specgguf.prompts import Prompt

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to decode. `num_draft` bounds the draft count, None: as usual."""

    name: str
    mode: Mode
    num_draft: int | None = None


PLAIN = Arm("plain", "off")


@dataclass(frozen=True, slots=True)
class Run:
    """One answer of one arm. Times in seconds; `decode_s` and `tokens` count from the second round on."""

    arm: str
    category: str
    prompt: int
    tokens: int
    decode_s: float
    outside_s: float
    first_token_s: float
    total_s: float
    rounds: int
    undrafted: int
    drafted: int
    accepted: int
    output_tokens: int

    @property
    def token_s(self) -> float:
        """Seconds a token took."""
        return self.decode_s / max(1, self.tokens)


def measure(
    engine: Engine,
    prompts: Sequence[Prompt],
    arms: Sequence[Arm],
    sampler: Sampler,
    max_tokens: int,
    repeat: int,
    on_progress: Callable[[int, int], object],
) -> Iterator[Run]:
    """Answer every prompt with every arm, `repeat` times."""
    rounds = [(time, number) for time in range(repeat) for number in range(len(prompts))]
    for done, (time, number) in enumerate(rounds):
        prompt = prompts[number]
        tokens = engine.tokenize_chat([{"role": "user", "content": prompt.prompt}])
        turn = (number + time) % len(arms)
        for arm in [*arms[turn:], *arms[:turn]]:
            engine.start_cold()
            generation = engine.generate(tokens, sampler, max_tokens, num_draft=arm.num_draft, mode=arm.mode)
            first = 0
            for _ in generation:
                first = first or len(generation.tokens)
            stats, timings = generation.stats, generation.timings
            yield Run(
                arm.name,
                prompt.category,
                number,
                len(generation.tokens) - first,
                timings.decode_s,
                timings.decode_s - timings.llama_s,
                timings.first_token_s,
                timings.first_token_s + timings.decode_s,
                stats.rounds,
                stats.undrafted,
                stats.drafted.total(),
                stats.accepted.total(),
                len(generation.tokens),
            )
        on_progress(done + 1, len(rounds))


def summarize(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A row for each arm and category, and for each arm over all."""
    arms = sorted({run.arm for run in runs}, key=lambda arm: (arm != PLAIN.name, arm))
    categories = list(dict.fromkeys(run.category for run in runs))
    plain: dict[int, list[float]] = {run.prompt: [] for run in runs}
    for run in runs:
        if run.arm == PLAIN.name:
            plain[run.prompt].append(run.token_s)
    rows = []
    for category in (*categories, "all"):
        for arm in arms:
            mine = [run for run in runs if run.arm == arm and category in (run.category, "all") and run.tokens]
            if mine:
                rows.append({"category": category, "arm": arm, **_row(mine, plain)})
    return rows


def _row(runs: Sequence[Run], plain: dict[int, list[float]]) -> dict[str, Any]:
    by_prompt: dict[int, list[float]] = {}
    for run in runs:
        by_prompt.setdefault(run.prompt, []).append(run.token_s)
    logs = [math.log(np.median(plain[prompt]) / np.median(times)) for prompt, times in by_prompt.items()]
    random = np.random.default_rng(0)
    means = random.choice(logs, (_RESAMPLES, len(logs))).mean(axis=1)
    totals = [run.total_s for run in runs]
    return {
        "prompts": len(by_prompt),
        "tokens_per_s": 1 / float(np.median([run.token_s for run in runs])),
        "speed": math.exp(sum(logs) / len(logs)),
        "speed_low": math.exp(float(np.quantile(means, 0.025))),
        "speed_high": math.exp(float(np.quantile(means, 0.975))),
        "speed_worst": math.exp(min(logs)),
        "mean_acceptance_length": sum(run.output_tokens for run in runs) / max(1, sum(run.rounds for run in runs)),
        "acceptance_rate": sum(run.accepted for run in runs) / max(1, sum(run.drafted for run in runs)),
        "undrafted": sum(run.undrafted for run in runs) / max(1, sum(run.rounds for run in runs)),
        "first_token_s": float(np.median([run.first_token_s for run in runs])),
        "last_token_s_p50": float(np.quantile(totals, 0.5)),
        "last_token_s_p95": float(np.quantile(totals, 0.95)),
        "outside": sum(run.outside_s for run in runs) / max(1e-9, sum(run.decode_s for run in runs)),
    }
