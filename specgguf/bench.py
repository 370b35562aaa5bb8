"""Plain against speculative decoding, measured side by side.

All arms answer a prompt one after the other, in an order that turns with every prompt, each from a cold start: nothing
in the caches, nothing learned about drafts, no text seen. So what slows the machine down for a while slows all of them
down, and only ratios within one run are reported as speed.

Behind the arms of a prompt comes a trace of its plain answer: what the drafts would have got right at each position,
and what batches and draft steps cost there. From the traces follows how fast drafting could have been at best.
"""

import math
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from statistics import median
from typing import Any

import numpy as np

from specgguf.core.context import common_prefix
from specgguf.core.costs import WidthCosts
from specgguf.core.oracle import best_s, chains
from specgguf.core.sampling import Sampler
from specgguf.core.suffix import SuffixDrafter
from specgguf.endpoint import Endpoint
from specgguf.engine import Engine, Mode
from specgguf.errors import UsageError
from specgguf.header import Header
from specgguf.llama import library
from specgguf.prompts import Prompt

METHOD = """All arms answer a prompt one after the other, in an order that turns with every prompt, each from a cold
start. Speed is the geometric mean over prompts of the paired ratios of seconds per token, from the second round on,
with a 95% interval bootstrapped over prompts. Of oracle: the share of the speed that drafting could have had at best,
found by replaying the plain answers with the fate of every possible draft known beforehand and the costs measured in
the same run. Length: the tokens a round yields on average, the target's own included. Undrafted: the share of rounds
without a draft. Outside: the share of time spent outside llama.cpp."""

METHOD_OF_ENDPOINTS = """Each prompt is one request for a streamed chat completion, to one server after the other, in
an order that turns with every prompt. Speed is the geometric mean over prompts of the paired ratios of seconds per
token, from the second piece on, with a 95% interval bootstrapped over prompts. Counted: whether the server has told the
number of tokens (usage) or the pieces it sent were counted, of which one may hold several tokens."""

_RESAMPLES = 2000
_WARM_UP = 8


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to decode. `num_draft` bounds the draft count, None: as usual."""

    name: str
    mode: Mode
    num_draft: int | None = None


PLAIN = Arm("plain", "off")


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


@dataclass(frozen=True, slots=True)
class Trace:
    """What is known of a plain answer afterwards.

    `drafted` and `copied`: how many of the tokens that follow each position the draft model, and text already seen,
    would have got right there. `width_s`: seconds of a batch at the answer's end by width; `step_s`: of a draft step.
    """

    category: str
    prompt: int
    drafted: list[int]
    copied: list[int]
    width_s: dict[int, float]
    step_s: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """A prompt, answered by every arm."""

    runs: list[Run]
    trace: Trace


def measure(
    engine: Engine,
    prompts: Sequence[Prompt],
    arms: Sequence[Arm],
    sampler: Sampler,
    max_tokens: int,
    repeat: int,
    on_progress: Callable[[int, int], object],
) -> Iterator[Measured]:
    """Answer every prompt with every arm, `repeat` times; `on_progress` is told how many answers and traces are done.

    Before that comes a short answer that nobody looks at: it brings both models into memory.
    """
    first = engine.tokenize_chat([{"role": "user", "content": prompts[0].prompt}])
    list(engine.generate(first, sampler, _WARM_UP, num_draft=1))
    rounds = [(time, number) for time in range(repeat) for number in range(len(prompts))]
    done, total = 0, len(rounds) * (len(arms) + 1)
    for time, number in rounds:
        prompt = prompts[number]
        tokens = engine.tokenize_chat([{"role": "user", "content": prompt.prompt}])
        turn = (number + time) % len(arms)
        runs, plain = [], list[int]()
        for arm in [*arms[turn:], *arms[:turn]]:
            on_progress(done, total)
            run, answer = _run(engine, tokens, arm, prompt.category, number, sampler, max_tokens)
            runs.append(run)
            plain = answer if arm is PLAIN else plain
            done += 1
        on_progress(done, total)
        yield Measured(runs, _trace(engine, tokens, plain, prompt.category, number, sampler))
        done += 1


def _run(
    engine: Engine, tokens: Sequence[int], arm: Arm, category: str, number: int, sampler: Sampler, max_tokens: int
) -> tuple[Run, list[int]]:
    """One answer, its tokens too."""
    engine.start_cold()
    generation = engine.generate(tokens, sampler, max_tokens, num_draft=arm.num_draft, mode=arm.mode)
    first = 0
    for _ in generation:
        first = first or len(generation.tokens)
    stats, timings = generation.stats, generation.timings
    run = Run(
        arm.name,
        category,
        number,
        len(generation.tokens) - first,
        timings.decode_s,
        timings.first_token_s,
        timings.first_token_s + timings.decode_s,
        len(generation.tokens),
        Rounds(
            stats.rounds,
            stats.undrafted,
            [stats.drafted_at[at] for at in range(len(stats.drafted_at))],
            [stats.accepted_at[at] for at in range(len(stats.drafted_at))],
            timings.decode_s - timings.llama_s,
        ),
    )
    return run, generation.tokens


def _trace(
    engine: Engine, prompt: Sequence[int], answer: Sequence[int], category: str, number: int, sampler: Sampler
) -> Trace:
    model, suffix = engine.drafter(sampler), SuffixDrafter(engine.eog)
    hits, copied, steps = [], [], []
    for at in range(len(answer)):
        tokens = [*prompt, *answer[:at]]
        draft = model.draft(tokens, 1) if model else None
        hits.append(draft is not None and draft.tokens == answer[at : at + 1])
        if draft and draft.tokens:
            steps.append(draft.seconds)
        copied.append(common_prefix(suffix.propose(tokens, engine.max_width - 1).tokens, answer[at:]))
    widths = engine.time_widths([*prompt, *answer])
    return Trace(category, number, chains(hits), copied, widths, median(steps) if steps else None)


def measure_endpoints(
    endpoints: Mapping[str, Endpoint],
    prompts: Sequence[Prompt],
    max_tokens: int,
    temperature: float,
    seed: int,
    repeat: int,
    on_progress: Callable[[int, int], object],
) -> Iterator[list[Run]]:
    """Have every prompt answered by every server, `repeat` times. Before that each gives a short answer to wake up."""
    for endpoint in endpoints.values():
        endpoint.ask(prompts[0].prompt, _WARM_UP, temperature, seed)
    rounds = [(time, number) for time in range(repeat) for number in range(len(prompts))]
    done, arms = 0, list(endpoints)
    for time, number in rounds:
        prompt, turn, runs = prompts[number], (number + time) % len(arms), []
        for arm in [*arms[turn:], *arms[:turn]]:
            on_progress(done, len(rounds) * len(arms))
            answer = endpoints[arm].ask(prompt.prompt, max_tokens, temperature, seed)
            runs.append(
                Run(
                    arm,
                    prompt.category,
                    number,
                    max(0, answer.num_tokens - 1),
                    answer.last_s - answer.first_s,
                    answer.first_s,
                    answer.last_s,
                    answer.num_tokens,
                    counted_by=answer.counted_by,
                )
            )
            done += 1
        yield runs


def report_endpoints(endpoints: Mapping[str, Endpoint], base: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Everything that was measured of servers, relative to the one named `base`; raises UsageError as `report`."""
    rows = summarize(runs, base, {})
    if len(endpoints) == 1:  # nothing to compare with
        rows = [{name: value for name, value in row.items() if not name.startswith("speed")} for row in rows]
    return {
        **{arm: {"url": endpoint.url, "model": endpoint.model} for arm, endpoint in endpoints.items()},
        "machine": {"system": platform.platform(), "specgguf": version("specgguf")},
        "method": " ".join(METHOD_OF_ENDPOINTS.split()),
        "rows": rows,
        "runs": [asdict(run) for run in runs],
    }


def report(engine: Engine, measured: Sequence[Measured]) -> dict[str, Any]:
    """Everything that was measured, with what and on which machine; raises UsageError if nothing could be timed."""
    runs = [run for prompt in measured for run in prompt.runs]
    traces = [prompt.trace for prompt in measured]
    rows = summarize(runs, PLAIN.name, _oracle(traces, _costs(engine, traces)) if traces else {})
    return {
        "target": _named(engine.target_header),
        "draft": _named(engine.draft_header) if engine.draft_header else None,
        "exact": engine.is_exact,
        "machine": {
            "device": library.devices(),
            "system": platform.platform(),
            "threads": engine.num_threads,
            "llama.cpp": library.version(),
            "specgguf": version("specgguf"),
        },
        "method": " ".join(METHOD.split()),
        "rows": rows,
        "runs": [asdict(run) for run in runs],
        "traces": [asdict(trace) for trace in traces],
    }


def _named(header: Header) -> str:
    """What is made here has a hash for a name: its own name too, then."""
    return header.path.name if header.name == header.path.name else f"{header.name} ({header.path.name})"


def _costs(engine: Engine, traces: Sequence[Trace]) -> WidthCosts:
    """What batches and draft steps have cost in the whole run."""
    steps = [trace.step_s for trace in traces if trace.step_s is not None]
    times = {width: median(trace.width_s[width] for trace in traces) for width in traces[0].width_s}
    return engine.costs(times, median(steps) if steps else None)


def _oracle(traces: Sequence[Trace], known: WidthCosts) -> dict[int, float]:
    """By prompt, the speed relative to plain decoding of whoever knew every draft's fate beforehand."""
    return {
        trace.prompt: len(trace.drafted) * known.plain / best_s(trace.drafted, trace.copied, known) for trace in traces
    }


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
    for category in (*dict.fromkeys(run.category for run in timed), "all"):
        for arm in arms:
            mine = [run for run in timed if run.arm == arm and category in (run.category, "all")]
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
