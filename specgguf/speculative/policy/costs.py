"""What a target decode costs by its width, and what a drafter's step costs."""

from collections.abc import Collection, Mapping
from itertools import pairwise
from math import exp, log
from typing import Any, TypedDict

_MEMORY = 12.0
"""A time is an average over about so many rounds."""
_CLAMP = 0.4
"""A well-known time moves as if one round were at most this far off, in log: a hiccup counts as 1.5 times as slow."""
_LEAP = 1.0
"""The same for a width seen for the first time, whose guess may be far off."""
_FIRST = 3
"""Rounds, the fastest of which tells how fast the machine is where it was known only how widths compare."""
_WRONG = 1.2
"""A machine that is faster than remembered by more than this, in log, was busy then."""
_GROWTH = 0.3
"""Until twice the width is seen: time grows with this power of it. 0 would be free, 1 no better than one by one."""
_STEP = 0.2
"""Until seen: a draft step in plain target steps."""
_ABOUT = 1.03
"""Speeds that differ by less are about the same."""
_CATCH_UP = 0.25
"""Until seen: decoding one of the tokens that a drafter has missed, in draft steps."""


class DrafterTimes(TypedDict, total=False):
    """Seconds of a draft step, and of each token that the drafter has missed; what is not there is not known."""

    step: float
    catch_up: float


class _Time:
    """The logarithm of a time relative to the machine's speed, and how many rounds it stands on."""

    __slots__ = ("value", "weight")

    def __init__(self, value: float, weight: float = 0.0) -> None:
        self.value = value
        self.weight = weight

    def observe(self, value: float) -> None:
        error = value - self.value
        self.weight = min(self.weight + 1, _MEMORY)
        if self.weight == 1:
            self.value += min(error, _LEAP)
        elif self.weight <= 3 and error < -_CLAMP:
            self.value = value  # Nothing makes a decode fast by accident: what was seen before was a hiccup.
        else:
            self.value += min(max(error, -_CLAMP), _CLAMP) / self.weight


class WidthCosts:
    """Seconds of a target decode by width, and for each drafter of a step, and of a token that it has missed.

    A table as jagged as the machine is; no line is fitted through it. All entries share one scale, so that a
    machine that becomes slower as a whole is seen to be so at every width, whichever is in use.
    """

    def __init__(
        self,
        cap: int,
        times: Mapping[int, float] | None = None,
        drafters: Mapping[str, DrafterTimes] | None = None,
        allowed: Collection[int] | None = None,
        rollback: float | None = None,
        rounds: float | Mapping[int, float] = _MEMORY,
    ) -> None:
        """`cap`: the longest draft; `allowed`: the only widths to decode; the rest: what earlier runs have measured,
        in so many `rounds` (by width if need be), the times of drafters by their names; `rollback` where a cache has to
        evaluate again.
        """
        self._allowed = sorted(n for n in (allowed or range(1, cap + 2)) if 1 <= n <= cap + 1)
        self.cap = self._allowed[-1] - 1
        """The longest draft that the allowed widths leave room for."""
        self._scale = self._scale_when_plain = 0.0
        of_width = rounds if isinstance(rounds, Mapping) else dict.fromkeys(times or {}, rounds)
        self._unscaled = 0 if any(of_width.values()) else _FIRST
        self._times = {n: _Time(log(seconds), of_width[n]) for n, seconds in sorted((times or {}).items())}
        rounds = _MEMORY if isinstance(rounds, Mapping) else rounds
        self._steps, self._catch_ups = (
            {name: _Time(_log(known[what]), rounds) for name, known in (drafters or {}).items() if what in known}
            for what in ("step", "catch_up")
        )
        self._rollback = _Time(_log(rollback), rounds) if rollback else None
        self._unproved = _MEMORY if self._times else 0.0
        """Rounds from now on that may show what is remembered to be wrong."""
        self._padded: list[tuple[int, float]] = []  # both derived, and empty when out of date
        self._extras: list[float] = []

    def observe(self, width: int, seconds: float) -> None:
        """A target decode of exactly `width` rows has taken so long."""
        value = _log(seconds)
        if self._unproved and width in self._times and value - self._scale - self._times[width].value < -_WRONG:
            # Nothing makes a decode fast by accident: what is remembered is of a busy machine.
            self._scale = value - self._times[width].value
        self._unproved = max(0.0, self._unproved - 1)
        if width not in self._times:
            self._times[width] = _Time(self._guess(width))
            self._times = dict(sorted(self._times.items()))
        time = self._times[width]
        error = value - self._scale - time.value
        if self._unscaled == _FIRST or (self._unscaled and error < 0 and width == self.width(1)):
            self._scale += error  # All that was known was how the widths compare.
        else:
            # What is known well tells how fast the machine is now; what is not tells about the width.
            self._scale += min(max(error, -_CLAMP), _CLAMP) * (time.weight / _MEMORY) ** 2 * 2 / _MEMORY
        self._unscaled = max(0, self._unscaled - 1)
        time.observe(value - self._scale)
        if width == self.width(1):
            self._scale_when_plain = self._scale
        self._padded, self._extras = [], []

    def observe_draft(self, drafter: str, steps: int, seconds: float, missed: int = 0) -> None:
        """A drafter has decoded the tokens that it had missed, then taken `steps` steps."""
        if missed <= 1:
            time = self._steps.setdefault(drafter, _Time(_log(self.draft_step(drafter)) - self._scale))
            time.observe(_log(seconds / steps) - self._scale)
        else:
            rest = max(seconds - steps * self.draft_step(drafter), 0.0) / missed
            time = self._catch_ups.setdefault(drafter, _Time(_log(self.catch_up(drafter)) - self._scale))
            time.observe(_log(rest) - self._scale)

    @property
    def plain(self) -> float:
        """Seconds of one step of plain decoding."""
        return self.padded(1)

    @property
    def plain_known(self) -> bool:
        """Whether plain decoding has been seen, and since the machine last changed its speed."""
        return self.knows(1) and abs(self._scale - self._scale_when_plain) < _CLAMP / 2

    def knows(self, rows: int) -> bool:
        """Whether a batch of so many rows, padded, has been seen."""
        time = self._times.get(self.width(rows))
        return time is not None and time.weight >= 2

    def draft_step(self, drafter: str) -> float:
        """Seconds of one draft step."""
        known = self.step(drafter)
        return self.plain * _STEP if known is None else known

    def step(self, drafter: str) -> float | None:
        """The same, None until it is seen."""
        known = self._steps.get(drafter)
        return exp(self._scale + known.value) if known else None

    def catch_up(self, drafter: str) -> float:
        """Seconds for each token that the drafter has missed."""
        known = self._catch_ups.get(drafter)
        return exp(self._scale + known.value) if known else self.draft_step(drafter) * _CATCH_UP

    @property
    def rollback(self) -> float:
        """Seconds that the rejection of a draft costs afterwards: none where cells can be cut off."""
        return exp(self._scale + self._rollback.value) if self._rollback else 0.0

    def observe_rollback(self, seconds: float) -> None:
        """What had been accepted of a draft was evaluated again."""
        self._rollback = self._rollback or _Time(_log(seconds) - self._scale)
        self._rollback.observe(_log(seconds) - self._scale)

    def time(self, width: int) -> float:
        """Seconds of a target decode of exactly `width` rows."""
        return exp(self._scale + (self._times[width].value if width in self._times else self._guess(width)))

    def width(self, rows: int) -> int:
        """The cheapest allowed width with room for `rows` rows."""
        return self._table()[rows - 1][0]

    def padded(self, rows: int) -> float:
        """Seconds of a target decode of `rows` rows, padded to the width that is cheapest."""
        return self._table()[rows - 1][1]

    def throughput(self, count: int) -> float:
        """Tokens a second of so many texts in one batch, undrafted."""
        return count / self.padded(count)

    def most_productive(self, most: int) -> int:
        """How many texts in one batch, at most so many, yield most; the fewest of those that yield about as much."""
        speeds = [self.throughput(count) for count in range(1, most + 1)]
        return next(count for count, speed in enumerate(speeds, 1) if speed * _ABOUT >= max(speeds))

    def extras(self) -> list[float]:
        """For 0, 1, 2, ... draft tokens, the seconds that their verification takes longer than a plain step."""
        if not self._extras:
            table = self._table()
            self._extras = [seconds - table[0][1] for _, seconds in table]
        return self._extras

    def table(self) -> dict[str, Any]:
        """What was learned, as arguments for the next run's: the rest is not known yet."""
        drafters: dict[str, DrafterTimes] = {name: {"step": self.draft_step(name)} for name in self._steps}
        for name in self._catch_ups:
            drafters.setdefault(name, {})["catch_up"] = self.catch_up(name)
        known = {
            "times": {width: self.time(width) for width in self._times},
            "rounds": {width: time.weight for width, time in self._times.items()},
            "drafters": drafters,
        }
        return {**known, "rollback": self.rollback} if self._rollback else known

    def _table(self) -> list[tuple[int, float]]:
        """Width and seconds for 1, 2, ... rows."""
        if not self._padded:
            width, seconds = self._allowed[-1], self.time(self._allowed[-1])
            for rows in range(width, 0, -1):
                if rows in self._allowed and (time := self.time(rows)) <= seconds:
                    width, seconds = rows, time
                self._padded.insert(0, (width, seconds))
        return self._padded

    def _guess(self, width: int) -> float:
        """An unseen width, in log: between its seen neighbours, or growing from the nearest one."""
        seen = list(self._times)
        if not seen:
            return _growth(width)
        for low, high in pairwise(seen):
            if low < width < high:
                share = log(width / low) / log(high / low)
                return self._times[low].value * (1 - share) + self._times[high].value * share
        if width < seen[0]:
            return self._times[seen[0]].value - _growth(seen[0] / width)
        return self._times[seen[-1]].value + _growth(width / seen[-1])


def fixed_speed(times: Mapping[int, float], num_draft: int, acceptance: float, step_s: float) -> float:
    """Tokens per second with drafts of one length, each token accepted this often if those before it are.

    `times`: seconds of a batch, for the widths there are; `step_s`: seconds of a draft step. (Leviathan et al., arXiv
    2211.17192, theorem 3.8, with the times of this machine.)
    """
    round_s = min(seconds for width, seconds in times.items() if width > num_draft) + num_draft * step_s
    return sum(acceptance**i for i in range(num_draft + 1)) / round_s


def _growth(ratio: float) -> float:
    """How much a width grown by `ratio` is guessed to cost more, in log: little at first, then in proportion.

    So wide batches are tried, but step by step.
    """
    return _GROWTH * log(min(ratio, 2.0)) + log(max(ratio / 2.0, 1.0))


def _log(seconds: float) -> float:
    """No time is so short that it cannot be averaged."""
    return log(max(seconds, 1e-9))
