"""Which batch widths give the same logits, to the last bit.

llama.cpp computes a batch of three tokens by other kernels than a batch of one, and rounds otherwise. But many widths
share their kernels. Widths whose logits are equal byte for byte form a *bit class*; inside one, how a text is cut into
batches does not matter.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from specgguf.exact.timing import Timing, time_rounds, time_widths
from specgguf.speculative.context import Context, Part
from specgguf.speculative.policy.costs import fixed_speed

Partition = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was found out about batches of 1 to `max(seconds)` tokens."""

    classes: Partition
    """Widths with equal bits at every depth, in order; a width that does not even repeat itself is in none."""
    timing: Timing
    """Of one batch by width."""

    @property
    def seconds(self) -> dict[int, float]:
        """Time of one batch by width."""
        return self.timing.seconds

    def agree(self, max_width: int) -> bool:
        """Whether all widths up to `max_width` give equal bits."""
        return any(set(range(1, max_width + 1)) <= set(widths) for widths in self.classes)


def measure(
    context: Context,
    text: Sequence[int],
    depths: Sequence[int],
    max_width: int,
    on_progress: Callable[[int, int], object],
) -> Measurement:
    """Decode the same tokens of `text` at every width, after contexts of `depths` tokens, and compare bytes.

    After the first one twice: a width may not even repeat itself. Both of these are rounds of timing too, and others
    follow at the end.

    The rows of a whole stretch of `max_width` tokens are compared, so that the cells the widths write into the cache
    are compared too. `on_progress` is told how many widths of how many are done.
    """
    digests: dict[int, list[bytes]] = defaultdict(list)
    passes = [depths[0], *depths]
    sweeps: list[dict[int, float]] = []
    for number, depth in enumerate(passes):
        context.sync(0, text[:depth])
        times = {}
        for width in range(1, max_width + 1):
            digest, times[width] = _stretch(context, text[depth : depth + max_width], width)
            digests[width].append(digest)
            on_progress(number * max_width + width, len(passes) * max_width)
        if depth == depths[0]:
            sweeps.append(times)
    groups: dict[tuple[bytes, ...], list[int]] = defaultdict(list)
    for width, (first, again, *_) in digests.items():
        if first == again:
            groups[tuple(digests[width])].append(width)
    return Measurement(
        tuple(map(tuple, groups.values())), measure_times(context, text, depths[0], max_width, on_progress, sweeps)
    )


def measure_times(
    context: Context,
    text: Sequence[int],
    depth: int,
    max_width: int,
    on_progress: Callable[[int, int], object],
    begun: Sequence[dict[int, float]] = (),
) -> Timing:
    """What batches of 1 to `max_width` tokens of `text` cost after `depth` tokens; `begun`: rounds made already."""

    def sweep() -> dict[int, float]:
        return time_widths(context, text[: depth + max_width], range(1, max_width + 1))

    return time_rounds(sweep, lambda rounds: on_progress(rounds, rounds + 1), begun)


def _stretch(context: Context, tokens: Sequence[int], width: int) -> tuple[bytes, float]:
    """A digest of the logits of all `tokens`, decoded `width` at a time, and the shortest time of a batch.

    The context is left as it was.
    """
    depth = len(context.tokens[0])
    digest, times = hashlib.sha256(), []
    for start in range(0, len(tokens), width):
        begin_s = context.decode_s
        part = tokens[start : start + width]
        (evaluated,) = context.decode([Part(0, part, len(part))], width)
        times.append(context.decode_s - begin_s)
        digest.update(evaluated.logits.tobytes())
    context.truncate(0, depth)
    return digest.digest(), min(times)


_DRAFTS = ((0.7, 0.35), (0.9, 0.0))
"""An ordinary draft model, and text that is copied: the chance that a token is accepted, and what drafting it costs, in
target decodes of one token."""


def expected_speed(widths: Sequence[int], seconds: dict[int, float], plain_s: float) -> float:
    """Tokens per second to be expected with batches of these widths: each kind of draft at its best fixed length.

    It must not depend on the draft at hand: the choice of widths decides the text, and a draft may not.
    `plain_s` is the time of one token under the usual settings.
    """

    times = {width: seconds[width] for width in widths}
    return geometric_mean(
        max(fixed_speed(times, count, acceptance, cost * plain_s) for count in range(max(widths)))
        for acceptance, cost in _DRAFTS
    )
