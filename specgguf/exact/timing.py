"""How long batches take: the least of several rounds, checked for sense.

What else a machine does makes a batch slower for a while, never faster. So a time is believed when two rounds agree on
it, and when the widths make sense beside each other.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, median_low
from typing import Any, Self

from specgguf.speculative.context import Context, Part

_ROUNDS = 3
"""Rounds at least."""
_MOST_ROUNDS = 10
"""Rounds in one sitting at most."""
_ENOUGH = 3 * _MOST_ROUNDS
"""After so many rounds a machine that never settles is taken as it is."""
_ALIKE = 1.15
"""Two rounds agree on a time where the longer one is at most so many times as long."""
_LEAST, _MOST = 0.5, 2.0
"""A wider batch takes no less than this share of the narrowest one's time, and a row of it at most so many times as
long as a row of that."""
_APART_S = 3600.0
"""Seconds after which what a busy machine has spoilt is measured again."""
_FASTER = 0.6
"""Rounds that take no more than this share of the time remembered say that it was measured badly."""

Times = Mapping[int, float]
"""Seconds of a batch by its width."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What rounds of measuring came to."""

    seconds: dict[int, float]
    """The least time by width."""
    rounds: int
    noise: float
    """How much longer than the least a round took, usually: 0.1 is a tenth."""
    steady: bool
    """Whether two rounds agreed at every width, and the widths make sense beside each other."""
    at: float = field(default_factory=time.time)
    """When, in seconds since 1970."""
    doubted: bool = False
    """Whether rounds have been much faster since."""

    @classmethod
    def of(cls, sweeps: Sequence[Times]) -> Self:
        """What these rounds over the same widths come to."""
        rounds = {width: sorted(sweep[width] for sweep in sweeps) for width in sweeps[0]}
        seconds = {width: times[0] for width, times in rounds.items()}
        noise = median(median_low(times) / times[0] - 1 for times in rounds.values())
        return cls(seconds, len(sweeps), noise, all(map(agree, rounds.values())) and is_sensible(seconds))

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """As `to_json` gave it."""
        return cls(**{**record, "seconds": {int(width): seconds for width, seconds in record["seconds"].items()}})

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @property
    def is_due(self) -> bool:
        """Whether it should be measured again: rounds have disproved it, or it was noisy and that is a while ago."""
        unsettled = not self.steady and self.rounds < _ENOUGH and time.time() - self.at > _APART_S
        return self.doubted or unsettled

    def disagrees(self, seen: Times) -> bool:
        """Whether what rounds have cost since, by width, was much faster."""
        return any(seconds <= _FASTER * self.seconds.get(width, 0.0) for width, seconds in seen.items())

    def merge(self, again: "Timing") -> "Timing":
        """The least of both; as steady as the later one, which was measured on purpose."""
        seconds = {width: min(self.seconds.get(width, least), least) for width, least in again.seconds.items()}
        return Timing(seconds, self.rounds + again.rounds, again.noise, again.steady, again.at)


def time_rounds(
    sweep: Callable[[], Times], on_progress: Callable[[int], object], begun: Sequence[Times] = (), least: int = _ROUNDS
) -> Timing:
    """Measure round by round, `least` at least, until the times are steady, or for as long as is reasonable.

    `begun`: rounds made already. `on_progress` is told how many rounds are done.
    """
    sweeps = list(begun)
    while True:
        sweeps.append(sweep())
        on_progress(len(sweeps))
        found = Timing.of(sweeps)
        if len(sweeps) >= max(least, _MOST_ROUNDS) or (len(sweeps) >= least and found.steady):
            return found


def time_widths(context: Context, tokens: Sequence[int], widths: Sequence[int]) -> dict[int, float]:
    """Seconds of a batch by width: the last of `tokens`, as many as the widest has, decoded after the others."""
    depth = len(tokens) - max(widths)
    context.sync(0, tokens[:depth])
    seconds = {}
    for width in widths:
        begin_s = context.decode_s
        context.decode([Part(0, tokens[depth : depth + width], width)])
        seconds[width] = context.decode_s - begin_s
        context.truncate(0, depth)
    return seconds


def agree(times: Sequence[float]) -> bool:
    """Whether the two shortest of several times are about the same."""
    first, second, *_ = [*sorted(times), float("inf"), float("inf")]
    return second <= _ALIKE * first


def is_sensible(seconds: Times) -> bool:
    """Whether these times by width make sense beside each other."""
    narrowest = min(seconds, default=0)
    if not narrowest:
        return True
    least = seconds[narrowest]
    return all(_LEAST * least <= time <= _MOST * least * width / narrowest for width, time in seconds.items())
