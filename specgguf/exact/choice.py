"""Exact mode: a choice of batch widths and settings in which drafting cannot change a bit.

The choice depends on target, machine and settings alone, never on the draft: it decides how the logits are rounded, and
so the text.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from specgguf.errors import UsageError
from specgguf.exact.classes import Measurement, expected_speed, measure, measure_times
from specgguf.exact.profiles import Fingerprint, Profiles
from specgguf.exact.timing import Times, Timing
from specgguf.llama import library
from specgguf.llama.context import ContextSettings, LlamaContext
from specgguf.llama.model import Model
from specgguf.models.header import ModelHeader

MAX_WIDTH = 17
"""The widest batch that is measured: 16 draft tokens and the last one."""

_DEPTHS = (32, 600)
"""Cells in the cache while measuring: llama.cpp's kernels change at 256 and 512."""
_CHUNK = 512
"""Tokens of a batch while these cells are filled."""


_CLEARLY = 1.2
"""Another choice changes the text: it must promise to be so many times as fast."""
Kept = tuple[str, tuple[int, ...]]
"""Settings and widths, as a choice is remembered."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What of the settings decides how llama.cpp rounds."""

    repack: bool
    cache_type_k: str
    cache_type_v: str

    def __str__(self) -> str:
        repacking = "on" if self.repack else "off"
        return f"weight repacking {repacking}, {self.cache_type_k}/{self.cache_type_v} cells"


@dataclass(frozen=True, slots=True)
class ExactChoice:
    """Settings, and the widths of batches to keep to."""

    arithmetic: Arithmetic
    widths: tuple[int, ...]
    plain_cost: float
    """Time of a token of plain decoding, relative to the usual settings."""

    @property
    def kept(self) -> Kept:
        """As it is remembered."""
        return str(self.arithmetic), self.widths

    @property
    def settings(self) -> str:
        """What decides the bits."""
        return f"batches of {', '.join(map(str, self.widths))} tokens, {self.arithmetic}"

    def __str__(self) -> str:
        return f"{self.settings}; plain decoding takes {self.plain_cost:.2f} times as long"


def candidates(cache_type_k: str | None, cache_type_v: str | None) -> list[Arithmetic]:
    """The settings to try, the usual ones first; what the user chose is kept to."""
    if cache_type_k or cache_type_v:
        cells = [(cache_type_k or "f16", cache_type_v or "f16")]
    else:
        cells = [("f16", "f16"), ("bf16", "bf16")]
    usual = [Arithmetic(True, *types) for types in cells]
    return [*usual, Arithmetic(False, *cells[-1])]


@dataclass(frozen=True, slots=True)
class WidthSurvey:
    """Finds out, or remembers, which widths are equal for a target on this machine.

    `on_progress` is told what is measured, and how many widths of how many are done.
    """

    header: ModelHeader
    n_gpu_layers: int
    n_threads: int
    profiles: Profiles
    on_progress: Callable[[str, int, int], object]

    def known(self, arithmetic: Arithmetic) -> Measurement | None:
        """What was measured of it before; None also if the file would have to be read to know."""
        if self.profiles.known_digest(self.header.path) is None:
            return None
        found = self.profiles.load(self.fingerprint(arithmetic))
        if found is None:
            return None
        return Measurement(tuple(map(tuple, found["classes"])), Timing.from_json(found["timing"]))

    def compare(self, arithmetic: Arithmetic, seen: Times) -> None:
        """Have the times measured anew, the next time they matter, where rounds since were much faster."""
        known = self.known(arithmetic)
        if known and known.timing.disagrees(seen):
            self._save(arithmetic, replace(known, timing=replace(known.timing, doubted=True)))

    def choose(self, arithmetics: list[Arithmetic]) -> ExactChoice:
        """The widths and settings with the best speed to be expected; measures what is not known yet, or in doubt.

        Raises UsageError where no class of widths leaves room for a draft.
        """
        self.profiles.digest_of(self.header.path)
        measured = {}
        for arithmetic in arithmetics:
            known = self.known(arithmetic)
            measured[arithmetic] = self._measure(arithmetic, known) if not known or known.timing.is_due else known
            if measured[arithmetic].agree(MAX_WIDTH):
                break  # all widths agree: nothing can be better
        choice = _best(measured, self.kept(arithmetics))
        self.profiles.save(self._choice_key(arithmetics), choice.kept)
        return choice

    def recall(self, arithmetics: list[Arithmetic]) -> ExactChoice | None:
        """What `choose` would answer, if it need not measure."""
        known = {arithmetic: found for arithmetic in arithmetics if (found := self.known(arithmetic))}
        complete = any(found.agree(MAX_WIDTH) for found in known.values())
        return _best(known, self.kept(arithmetics)) if complete or len(known) == len(arithmetics) else None

    def kept(self, arithmetics: list[Arithmetic]) -> Kept | None:
        """What was chosen before."""
        found = self.profiles.load(self._choice_key(arithmetics))
        return (found[0], tuple(found[1])) if found else None

    def _choice_key(self, arithmetics: list[Arithmetic]) -> Fingerprint:
        return {**self.fingerprint(arithmetics[0]), "what": "exact choice", "of": "; ".join(map(str, arithmetics))}

    def _measure(self, arithmetic: Arithmetic, known: Measurement | None) -> Measurement:
        """All of it, or where bits are known only the times; saved."""
        what = f"comparing batch widths: {arithmetic}"

        def on_progress(done: int, total: int) -> None:
            self.on_progress(what, done, total)

        with self._opened(arithmetic) as (context, text):
            if known:
                again = measure_times(context, text, _DEPTHS[0], MAX_WIDTH, on_progress)
                found = replace(known, timing=known.timing.merge(again))
            else:
                found = measure(context, text, _DEPTHS, MAX_WIDTH, on_progress)
        self._save(arithmetic, found)
        return found

    def _save(self, arithmetic: Arithmetic, found: Measurement) -> None:
        record = {"classes": found.classes, "timing": found.timing.to_json()}
        self.profiles.save(self.fingerprint(arithmetic), record)

    @contextmanager
    def _opened(self, arithmetic: Arithmetic) -> Iterator[tuple[LlamaContext, list[int]]]:
        """A context to measure with, and a text that fills it."""
        with ExitStack() as resources:
            model = resources.enter_context(closing(Model(self.header, self.n_gpu_layers, repack=arithmetic.repack)))
            num_tokens = max(_DEPTHS) + MAX_WIDTH
            settings = ContextSettings(
                n_ctx=num_tokens,
                n_threads=self.n_threads,
                cache_type_k=arithmetic.cache_type_k,
                cache_type_v=arithmetic.cache_type_v,
                max_rows=MAX_WIDTH,
                n_batch=_CHUNK,
            )
            context = resources.enter_context(closing(LlamaContext(model, settings)))
            # Any ids will do.
            yield context, [(7919 * i + 104729) % model.vocab.num_tokens for i in range(num_tokens)]

    def fingerprint(self, arithmetic: Arithmetic) -> Fingerprint:
        """Everything that bits and times depend on."""
        return {
            "model": self.profiles.digest_of(self.header.path),
            "llama.cpp": library.version(),
            "device": library.devices(),
            "gpu_layers": self.n_gpu_layers,
            "threads": self.n_threads,
            "repack": arithmetic.repack,
            "cache_type_k": arithmetic.cache_type_k,
            "cache_type_v": arithmetic.cache_type_v,
            "depths": str(_DEPTHS),
            "max_width": MAX_WIDTH,
            "times": "the least of several rounds",
        }


def _best(measured: Mapping[Arithmetic, Measurement], kept: Kept | None) -> ExactChoice:
    """The choice among what was measured, the usual settings first; what was `kept` to, unless it is clearly slower."""
    usual_s = min(next(iter(measured.values())).seconds.values())
    choices = [
        (expected_speed(widths, found.seconds, usual_s), arithmetic, widths)
        for arithmetic, found in measured.items()
        for widths in found.classes
        if max(widths) > 1  # else there is no room for a draft
    ]
    if not choices:
        raise UsageError(
            "--exact: on this device no two ways to cut a text into batches give the same bits",
            "leave out --exact, or use another device: --gpu-layers 0",
        )
    fastest, arithmetic, widths = max(choices, key=lambda choice: choice[0])
    for speed, settings, group in choices:
        if (str(settings), group) == kept and speed * _CLEARLY >= fastest:
            arithmetic, widths = settings, group
    seconds = measured[arithmetic].seconds
    return ExactChoice(arithmetic, widths, min(seconds[width] for width in widths) / usual_s)
