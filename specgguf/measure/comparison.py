"""Ways to answer the same prompts, compared: in which order they take turns, and the table of their speeds."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from specgguf.errors import UsageError
from specgguf.measure.prompts import ALL

WARM_UP = 8
"""Tokens of the answer that comes first and is not measured."""
_RESAMPLES = 2000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rounds:
    """How an answer of ours was decoded. `outside_s`: seconds spent outside llama.cpp."""

    rounds: int
    undrafted: int
    drafted_at: list[int]
    """Draft tokens sent to verification, by their position in the draft."""
    accepted_at: list[int]
    outside_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """One answer of one arm. Times in seconds; `decode_s` and `tokens` count from the second round or piece on."""

    arm: str
    category: str
    prompt: int
    tokens: int
    decode_s: float
    first_token_s: float
    total_s: float
    output_tokens: int
    rounds: Rounds | None = None
    """None for a server's."""
    counted_by: str = "tokens"
    """For a server's: usage, if it has told how many tokens there were, else pieces."""

    @property
    def token_s(self) -> float:
        """Seconds a token took."""
        return self.decode_s / max(1, self.tokens)


def in_turns(num_prompts: int, arms: Sequence[T], repeat: int) -> Iterator[tuple[int, list[T]]]:
    """Prompts by their numbers, `repeat` times all of them, each with the arms in an order that turns."""
    for time in range(repeat):
        for number in range(num_prompts):
            turn = (number + time) % len(arms)
            yield number, [*arms[turn:], *arms[:turn]]


def summarize(runs: Sequence[Run], base: str, oracle: Mapping[int, float]) -> list[dict[str, Any]]:
    """A row for each arm and category, and for each arm over all; speed is relative to the arm `base`.

    `oracle`: the best speed there can be, by prompt. Raises UsageError if no answer could be timed.
    """
    usual: dict[int, list[float]] = {}
    for run in runs:
        if run.arm == base and run.tokens:
            usual.setdefault(run.prompt, []).append(run.token_s)
    timed = [run for run in runs if run.tokens and run.prompt in usual]
    if not timed:
        raise UsageError("no answer was long enough to be timed", "give a larger --max-tokens, or other prompts")
    arms = sorted({run.arm for run in timed}, key=lambda arm: (arm != base, arm))
    rows = []
    for category in (*dict.fromkeys(run.category for run in timed), ALL):
        for arm in arms:
            mine = [run for run in timed if run.arm == arm and category in (run.category, ALL)]
            if mine:
                rows.append({"category": category, "arm": arm, **_row(mine, usual, oracle)})
    return rows


def _row(runs: Sequence[Run], usual: Mapping[int, Sequence[float]], oracle: Mapping[int, float]) -> dict[str, Any]:
    by_prompt: dict[int, list[float]] = {}
    for run in runs:
        by_prompt.setdefault(run.prompt, []).append(run.token_s)
    logs = [math.log(np.median(usual[prompt]) / np.median(times)) for prompt, times in by_prompt.items()]
    means = np.random.default_rng(0).choice(logs, (_RESAMPLES, len(logs))).mean(axis=1)
    totals = [run.total_s for run in runs]
    row: dict[str, Any] = {
        "prompts": len(by_prompt),
        "tokens_per_s": 1 / float(np.median([run.token_s for run in runs])),
        "speed": math.exp(sum(logs) / len(logs)),
        "speed_low": math.exp(float(np.quantile(means, 0.025))),
        "speed_high": math.exp(float(np.quantile(means, 0.975))),
        "speed_worst": math.exp(min(logs)),
        "first_token_s": float(np.median([run.first_token_s for run in runs])),
        "last_token_s_p50": float(np.quantile(totals, 0.5)),
        "last_token_s_p95": float(np.quantile(totals, 0.95)),
    }
    if oracle:
        row["oracle_speed"] = math.exp(sum(math.log(oracle[prompt]) for prompt in by_prompt) / len(logs))
        row["of_oracle"] = row["speed"] / row["oracle_speed"]
    decoded = [run.rounds for run in runs if run.rounds]
    if decoded:
        row |= _drafting(decoded, sum(run.output_tokens for run in runs))
        row["outside"] = sum(rounds.outside_s for rounds in decoded) / max(1e-9, sum(run.decode_s for run in runs))
    else:
        row["counted_by"] = ", ".join(sorted({run.counted_by for run in runs}))
    return row


def _drafting(decoded: Sequence[Rounds], num_tokens: int) -> dict[str, Any]:
    drafted, accepted = _sums([one.drafted_at for one in decoded]), _sums([one.accepted_at for one in decoded])
    num_rounds = max(1, sum(one.rounds for one in decoded))
    return {
        "mean_acceptance_length": num_tokens / num_rounds,
        "acceptance_rate": sum(accepted) / max(1, sum(drafted)),
        "per_position": [right / sent for right, sent in zip(accepted, drafted, strict=True)],
        "undrafted": sum(one.undrafted for one in decoded) / num_rounds,
    }


def _sums(counts: Sequence[Sequence[int]]) -> list[int]:
    """Position by position."""
    total = Counter[int]()
    for row in counts:
        total.update(dict(enumerate(row)))
    return [total[at] for at in sorted(total)]
