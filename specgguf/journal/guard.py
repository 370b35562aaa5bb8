"""When a route loses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

COMPARED = 3
"""Plain answers that tell how fast plain decoding is, where drafting itself cannot tell."""
LEAST_WINDOW = 10


@dataclass(frozen=True, slots=True)
class Guard:
    """Below which speed against plain decoding, over how many answers, a route is switched off."""

    min_speed: float
    window: int


class Judged(NamedTuple):
    """What a guard sees of an answer."""

    is_plain: bool
    tokens_per_s: float
    judged_s: float
    plain_s: float
    """As in `Row`."""


def plain_speed(answers: Sequence[Judged]) -> float | None:
    """Tokens a second of those that were plain, in the middle, if there are enough to tell."""
    known = sorted(answer.tokens_per_s for answer in answers if answer.is_plain)
    return known[len(known) // 2] if len(known) >= COMPARED else None


def losing(answers: Sequence[Judged], guard: Guard) -> float | None:
    """The speed of the last answers, if it is below what the guard asks for and their window is full; else None."""
    judged_s = sum(answer.judged_s for answer in answers)
    if len(answers) < guard.window or not judged_s:
        return None
    speed = sum(answer.plain_s for answer in answers) / judged_s
    return speed if speed < guard.min_speed else None
