"""Measures thoroughly what batches and draft steps cost: drafting starts with that instead of having to learn it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from specgguf.engine.checks import num_layers
from specgguf.engine.engine import Engine
from specgguf.engine.settings import N_BATCH, EngineSettings
from specgguf.engine.workbench import Workbench, time_widths
from specgguf.exact.choice import MAX_WIDTH
from specgguf.exact.profiles import Fingerprint
from specgguf.llama import library
from specgguf.llama.context import ContextSettings, LlamaContext
from specgguf.llama.model import Model
from specgguf.measure.prompts import BENCH, built_in
from specgguf.models.header import ModelHeader
from specgguf.speculative.drafter import while_possible
from specgguf.speculative.policy.costs import DrafterTimes, WidthCosts, fixed_speed
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
    """Seconds of a batch of the target by context depth and width, and of a step of each drafter by depth."""

    width_s: dict[int, dict[int, float]]
    step_s: dict[int, dict[str, float]]

    def tables(self, share: float = 1.0) -> dict[int, dict[str, Any]]:
        """As the engine remembers them, for drafters that take this share of the time."""
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
    for number, depth in enumerate(depths):
        sweeps, steps = [], dict[str, list[float]]()
        for repeat in range(REPEATS + 1):
            on_progress(number * (REPEATS + 1) + repeat, len(depths) * (REPEATS + 1))
            sweeps.append(workbench.time_widths(text[: depth + engine.max_width]))
            for drafter in workbench.drafters():
                sequence = TokenSequence(text[:depth], sampler, depth + _STEPS)
                (draft,) = drafter.draft([sequence], [_STEPS], while_possible)
                if draft.tokens and repeat:  # the first of each has filled the caches
                    steps.setdefault(drafter.name, []).append(draft.seconds / len(draft.tokens))
        tuned.width_s[depth] = _shortest(sweeps[1:])
        tuned.step_s[depth] = {name: min(seconds) for name, seconds in steps.items()}
    on_progress(1, 1)
    engine.learn_costs(tuned.tables())
    return tuned


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
        sweeps = []
        for repeat in range(repeats + 1):
            on_progress(repeat, repeats + 1)
            sweeps.append(time_widths(context, text, widths))
        return _shortest(sweeps[1:])


def draft_saving(published: Path, requantized: Path, place: Place, on_progress: Progress) -> float:
    """The share of a step that requantizing saves, measured in turns; 0 if that is too little to matter."""
    times: dict[Path, list[float]] = {published: [], requantized: []}
    for turn in range(2):
        for number, path in enumerate(times):
            on_progress(2 * turn + number, 4)
            times[path].append(file_times(path, "draft", place, [1], _STEPS * REPEATS, lambda *_: None)[1])
    share = min(times[requantized]) / min(times[published])
    return 1 - share if share <= _WORTH_IT else 0.0


def best_fixed(times: Mapping[int, float], step_s: float) -> tuple[float, int]:
    """Tokens per second with drafts of the best fixed length at the assumed acceptance, and that length."""
    return max((fixed_speed(times, count, ACCEPTANCE, step_s), count) for count in range(max(times)))


def advice_key(digest: str) -> Fingerprint:
    """Under what it is remembered how a draft, by its hash, is better requantized."""
    return {"what": "draft", "model": digest, "llama.cpp": library.version(), "device": library.devices()}


def _shortest(sweeps: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The shortest time by width. Nothing makes a batch fast by accident."""
    return {width: min(sweep[width] for sweep in sweeps) for width in sweeps[0]}


def _text(tokenize: Callable[[str], list[int]]) -> list[int]:
    """Enough tokens for every depth, of ordinary text: in a mixture of experts those of one token would be too few."""
    tokens = tokenize("\n\n".join(prompt.prompt for prompt in built_in(BENCH)))
    return tokens * -(-(max(DEPTHS) + MAX_WIDTH + 1) // len(tokens))
