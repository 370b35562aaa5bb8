"""Plain against speculative decoding, measured side by side.

All arms answer a prompt one after the other, in an order that turns with every prompt, each from a cold start: nothing
in the caches, nothing learned about drafts, no text seen. So what slows the machine down for a while slows all of them
down, and only ratios within one run are reported as speed.

After the arms of a prompt comes a trace of its plain answer: what the drafts would have got right at each position,
and what batches and draft steps cost there. From the traces follows how fast drafting could have been at best.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from statistics import median
from typing import Any, TypeAlias

from specgguf.drafters.ngram import NgramDrafter
from specgguf.engine.engine import Engine
from specgguf.engine.generation import Generation
from specgguf.engine.settings import Mode
from specgguf.engine.workbench import Workbench
from specgguf.llama import library
from specgguf.measure.comparison import WARM_UP, Rounds, Run, in_turns, summarize
from specgguf.measure.oracle import run_lengths, shortest_time
from specgguf.measure.prompts import Prompt
from specgguf.models.header import ModelHeader
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.context import common_prefix
from specgguf.speculative.drafter import Draft, Drafter, while_possible
from specgguf.speculative.policy.costs import DrafterTimes, WidthCosts
from specgguf.speculative.sequence import TokenSequence

METHOD = """All arms answer a prompt one after the other, in an order that turns with every prompt, each from a cold
start. Speed is the geometric mean over prompts of the paired ratios of seconds per token, from the second round on,
with a 95% interval bootstrapped over prompts. Of oracle: the share of the speed that drafting could have had at best,
found by replaying the plain answers with the fate of every possible draft known beforehand and the costs measured in
the same run. Length: the tokens a round yields on average, the target's own included. Undrafted: the share of rounds
without a draft. Outside: the share of time spent outside llama.cpp."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to decode. `num_draft` bounds the draft count, None: as usual."""

    name: str
    mode: Mode
    num_draft: int | None = None


PLAIN = Arm("plain", Mode.OFF)
_DRAFTED = "drafted"
"""Stands for the draft model or head whose drafts are traced."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What is known of a plain answer afterwards.

    `drafted` and `copied`: how many of the tokens that follow each position the draft model or head, and text already
    seen, would have got right there. `confidence`: how sure the former was of its first guess. `width_s`: seconds of a
    batch at the answer's end by width; `step_s`: of a draft step.
    """

    category: str
    prompt: int
    drafted: list[int]
    copied: list[int]
    confidence: list[float]
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
    asked = [engine.tokenize_chat([{"role": "user", "content": prompt.prompt}]) for prompt in prompts]
    workbench = Workbench(engine, max(engine.n_ctx_for(len(tokens), max_tokens) for tokens in asked))
    list(engine.generate(asked[0], sampler, WARM_UP, num_draft=min(1, len(workbench.drafters()))))
    done, total = 0, repeat * len(prompts) * (len(arms) + 1)
    for number, turned in in_turns(len(prompts), arms, repeat):
        category, runs, plain = prompts[number].category, [], list[int]()
        for arm in turned:
            on_progress(done, total)
            workbench.start_cold()
            generation = engine.generate(asked[number], sampler, max_tokens, num_draft=arm.num_draft, mode=arm.mode)
            runs.append(_run(generation, arm, category, number))
            plain = generation.tokens if arm is PLAIN else plain
            done += 1
        on_progress(done, total)
        yield Measured(runs, _trace(workbench, asked[number], plain, category, number, sampler))
        done += 1


def _run(generation: Generation, arm: Arm, category: str, number: int) -> Run:
    """One answer."""
    first = 0
    for _ in generation:
        first = first or len(generation.tokens)
    stats, timings = generation.stats, generation.timings
    return Run(
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
            [drafted for drafted, _ in stats.positions],
            [accepted for _, accepted in stats.positions],
            timings.decode_s - timings.llama_s,
        ),
    )


def _trace(
    workbench: Workbench, prompt: Sequence[int], answer: Sequence[int], category: str, number: int, sampler: Sampler
) -> Trace:
    engine = workbench.engine
    ngram = NgramDrafter(engine.target.vocab.eog)
    most, copied = engine.max_width - 1, []
    for at in range(len(answer)):
        sequence = TokenSequence([*prompt, *answer[:at]], sampler, len(prompt) + len(answer))
        copied.append(common_prefix(_guess(ngram, sequence, most).tokens, answer[at:]))
    drafted, confidence, step_s = [0] * len(answer), [0.0] * len(answer), None
    for drafter in workbench.drafters()[:1]:
        guess = _trace_head if drafter.taps else _trace_model
        drafted, confidence, step_s = guess(workbench, drafter, prompt, answer, sampler)
    widths = workbench.time_widths([*prompt, *answer])
    return Trace(category, number, drafted, copied, confidence, widths, step_s)


_Traced: TypeAlias = tuple[list[int], list[float], float | None]
"""The fields `drafted`, `confidence` and `step_s` of a `Trace`."""


def _trace_model(
    workbench: Workbench, drafter: Drafter, prompt: Sequence[int], answer: Sequence[int], sampler: Sampler
) -> _Traced:
    """A draft model's next token at each position says what it would have drafted from any other one."""
    hits, confidence, steps = [], [], []
    for at in range(len(answer)):
        guess = _guess(drafter, TokenSequence([*prompt, *answer[:at]], sampler, len(prompt) + len(answer)), 1)
        hits.append(guess.tokens == answer[at : at + 1])
        steps += [guess.seconds] if guess.tokens else []
        confidence.append(guess.probabilities[0] if guess.tokens else 0.0)
    return run_lengths(hits), confidence, median(steps) if steps else None


def _trace_head(
    workbench: Workbench, drafter: Drafter, prompt: Sequence[int], answer: Sequence[int], sampler: Sampler
) -> _Traced:
    """A head goes on from its own hidden states, so it has to draft at each position."""
    drafted, confidence, steps = [], [], []
    workbench.start_cold()
    for at, sequence in enumerate(workbench.follow(prompt, answer, sampler, drafter)):
        guess = _guess(drafter, sequence, workbench.engine.max_width - 1)
        drafted.append(common_prefix(guess.tokens, answer[at:]))
        steps += [guess.seconds / len(guess.tokens)] if guess.tokens else []
        confidence.append(guess.probabilities[0] if guess.tokens else 0.0)
    return drafted, confidence, median(steps) if steps else None


def _guess(drafter: Drafter, sequence: TokenSequence, limit: int) -> Draft:
    return drafter.draft([sequence], [limit], while_possible)[0]


def report(engine: Engine, measured: Sequence[Measured]) -> dict[str, Any]:
    """Everything that was measured, with what and on which machine; raises UsageError if nothing could be timed."""
    runs = [run for prompt in measured for run in prompt.runs]
    traces = [prompt.trace for prompt in measured]
    rows = summarize(runs, PLAIN.name, _oracle(traces, _costs(engine, traces, runs)) if traces else {})
    return {
        **machine_of(engine),
        "method": " ".join(METHOD.split()),
        "rows": rows,
        "runs": [asdict(run) for run in runs],
        "traces": [asdict(trace) for trace in traces],
    }


def machine_of(engine: Engine) -> dict[str, Any]:
    """For a report: what was measured, and on which machine."""
    return {
        "target": _named(engine.target.header),
        "draft": _named(engine.draft.header) if engine.draft else None,
        "exact": engine.is_exact,
        "machine": {
            "device": library.devices(),
            "system": platform.platform(),
            "threads": engine.num_threads,
            "llama.cpp": library.version(),
            "specgguf": version("specgguf"),
        },
    }


def _named(header: ModelHeader) -> str:
    """What is made here has a hash for a name: its own name too, then."""
    return header.path.name if header.name == header.path.name else f"{header.name} ({header.path.name})"


def _costs(engine: Engine, traces: Sequence[Trace], runs: Sequence[Run]) -> WidthCosts:
    """What batches and draft steps have cost in the whole run: plain steps in the plain answers themselves."""
    steps = [trace.step_s for trace in traces if trace.step_s is not None]
    times = {width: median(trace.width_s[width] for trace in traces) for width in traces[0].width_s}
    plain = [run.token_s for run in runs if run.arm == PLAIN.name and run.tokens]
    times[min(times)] = median(plain or [times[min(times)]])
    drafters: dict[str, DrafterTimes] = {_DRAFTED: {"step": median(steps)}} if steps else {}
    return WidthCosts(engine.max_width - 1, times, drafters, engine.widths or None)


def _oracle(traces: Sequence[Trace], costs: WidthCosts) -> dict[int, float]:
    """By prompt, the speed relative to plain decoding of whoever knew every draft's fate beforehand."""
    speeds = {}
    for trace in traces:
        right = {_DRAFTED: trace.drafted, NgramDrafter.name: trace.copied}
        speeds[trace.prompt] = len(trace.drafted) * costs.plain / shortest_time(right, {NgramDrafter.name}, costs)
    return speeds
