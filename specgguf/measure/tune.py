"""Measures thoroughly what batches and draft steps cost: drafting starts with that instead of having to learn it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from specgguf.engine.checks import num_layers
from specgguf.engine.engine import Engine
from specgguf.engine.memory import TunedCosts
from specgguf.engine.settings import N_BATCH, EngineSettings
from specgguf.engine.workbench import Workbench
from specgguf.exact.choice import MAX_WIDTH
from specgguf.exact.profiles import Fingerprint
from specgguf.exact.timing import Timing, agree, time_rounds, time_widths
from specgguf.llama import library
from specgguf.llama.context import ContextSettings, LlamaContext
from specgguf.llama.model import Model
from specgguf.measure.prompts import BENCH, built_in
from specgguf.models.header import ModelHeader
from specgguf.speculative.drafter import while_possible
from specgguf.speculative.policy.costs import DrafterTimes, WidthCosts, fixed_speed
from specgguf.speculative.policy.depths import by_level
from specgguf.speculative.sequence import TokenSequence

DEPTHS = (128, 3000)
"""Tokens in the context while measuring."""

ACCEPTANCE = 0.8
"""How often a drafted token is assumed to be accepted where speeds are foretold."""

REPEATS = 5
_STEPS = 8
_WORTH_IT = 0.95
"""A requantized draft is offered if its step takes at most this share of the time."""

Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What batches of the target cost by context depth, and seconds of a step of each drafter by depth."""

    timings: dict[int, Timing]
    step_s: dict[int, dict[str, float]]

    @property
    def width_s(self) -> dict[int, dict[int, float]]:
        """Seconds of a batch by depth and width."""
        return {depth: timing.seconds for depth, timing in self.timings.items()}

    @property
    def noise(self) -> float:
        """How much longer than the least a round took, usually: 0.1 is a tenth."""
        return max(timing.noise for timing in self.timings.values())

    @property
    def steady(self) -> bool:
        """Whether rounds agreed."""
        return all(timing.steady for timing in self.timings.values())

    def remembered(self, share: float = 1.0) -> TunedCosts:
        """As the engine remembers it, for drafters that take this share of the time."""
        return TunedCosts(by_level(self.tables(share)), self.noise, self.steady)

    def tables(self, share: float = 1.0) -> dict[int, dict[str, Any]]:
        """By depth, the arguments of `WidthCosts`, for drafters that take this share of the time."""
        return {depth: {"times": times, "drafters": self._steps(depth, share)} for depth, times in self.width_s.items()}

    def costs(self, depth: int) -> WidthCosts:
        """Of the batches after so many tokens."""
        times = self.width_s[depth]
        return WidthCosts(max(times) - 1, times)

    def _steps(self, depth: int, share: float) -> dict[str, DrafterTimes]:
        return {name: {"step": share * seconds} for name, seconds in self.step_s[depth].items()}


def tune(engine: Engine, on_progress: Progress) -> Tuned:
    """Measure at every depth that fits the model, several times over, and have `auto` start with it from now on."""
    text = _text(engine.target.vocab.tokenize)
    sampler = engine.sampler(temperature=0.0)
    workbench = Workbench(engine, engine.n_ctx_for(1, None))
    depths = [depth for depth in DEPTHS if depth + MAX_WIDTH <= workbench.n_ctx] or [workbench.n_ctx - MAX_WIDTH]
    tuned = Tuned({}, {})

    def sweep(depth: int, steps: dict[str, list[float]]) -> dict[int, float]:
        times = workbench.time_widths(text[: depth + engine.max_width])
        for drafter in workbench.drafters():
            sequence = TokenSequence(text[:depth], sampler, depth + _STEPS)
            (draft,) = drafter.draft([sequence], [_STEPS], while_possible)
            if draft.tokens:
                steps.setdefault(drafter.name, []).append(draft.seconds / len(draft.tokens))
        return times

    for number, depth in enumerate(depths):
        sweep(depth, {})  # fills the caches
        steps = dict[str, list[float]]()
        show = partial(_show_rounds, on_progress, number, len(depths))
        tuned.timings[depth] = time_rounds(partial(sweep, depth, steps), show, least=REPEATS)
        tuned.step_s[depth] = {name: min(seconds) for name, seconds in steps.items()}
    on_progress(1, 1)
    engine.learn_costs(tuned.remembered())
    return tuned


def _show_rounds(on_progress: Progress, number: int, count: int, rounds: int) -> None:
    """Of the depth `number` of so many, so many rounds are done: of one that takes longer a part is left."""
    share = rounds / max(REPEATS, rounds + 1)
    on_progress(round(100 * (number + share)), 100 * count)


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how a model computes."""

    n_gpu_layers: int
    num_threads: int
    cache_type_k: str
    cache_type_v: str

    @classmethod
    def of(cls, settings: EngineSettings, role: str) -> Self:
        """Where the engine puts the target or the draft."""
        option, wanted = ("--gpu-layers", settings.n_gpu_layers)
        if role == "draft":
            option, wanted = ("--draft-gpu-layers", settings.draft_n_gpu_layers)
        return cls(
            num_layers(option, wanted),
            settings.n_threads or library.num_physical_cores(),
            settings.cache_type_k or "f16",
            settings.cache_type_v or "f16",
        )


def file_times(
    path: Path, role: str, place: Place, widths: Sequence[int], repeats: int, on_progress: Progress
) -> dict[int, float]:
    """Seconds of a batch of a model by width, after a short context."""
    with ExitStack() as resources:
        model = resources.enter_context(closing(Model(ModelHeader.of_file(path, role), place.n_gpu_layers)))
        settings = ContextSettings(
            n_ctx=DEPTHS[0] + MAX_WIDTH,
            n_threads=place.num_threads,
            cache_type_k=place.cache_type_k,
            cache_type_v=place.cache_type_v,
            max_rows=max(widths),
            n_batch=N_BATCH,
        )
        context = resources.enter_context(closing(LlamaContext(model, settings)))
        text = _text(model.vocab.tokenize)[: DEPTHS[0] + max(widths)]
        time_widths(context, text, widths)  # fills the cache
        show = partial(_show_rounds, on_progress, 0, 1)
        return time_rounds(partial(time_widths, context, text, widths), show, least=repeats).seconds


def draft_saving(published: Path, requantized: Path, place: Place, on_progress: Progress) -> float:
    """The share of a step that requantizing saves, measured in turns until they agree.

    0 if that is too little to matter, or if they never do.
    """
    times: dict[Path, list[float]] = {published: [], requantized: []}
    for turn in range(REPEATS):
        for number, path in enumerate(times):
            on_progress(2 * turn + number, 2 * REPEATS)
            times[path].append(file_times(path, "draft", place, [1], _STEPS * REPEATS, lambda *_: None)[1])
        if all(map(agree, times.values())):
            break
    share = min(times[requantized]) / min(times[published])
    return 1 - share if share <= _WORTH_IT and all(map(agree, times.values())) else 0.0


def best_fixed(times: Mapping[int, float], step_s: float) -> tuple[float, int]:
    """Tokens per second with drafts of the best fixed length at the assumed acceptance, and that length."""
    return max((fixed_speed(times, count, ACCEPTANCE, step_s), count) for count in range(max(times)))


def advice_key(digest: str) -> Fingerprint:
    """Under what it is remembered how a draft, by its hash, is better requantized."""
    return {"what": "draft", "model": digest, "llama.cpp": library.version(), "device": library.devices()}


def _text(tokenize: Callable[[str], list[int]]) -> list[int]:
    """Enough tokens for every depth, of ordinary text: in a mixture of experts those of one token would be too few."""
    tokens = tokenize("\n\n".join(prompt.prompt for prompt in built_in(BENCH)))
    return tokens * -(-(max(DEPTHS) + MAX_WIDTH + 1) // len(tokens))
