"""What a drafter is."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from specgguf.speculative.context import Evaluated
from specgguf.speculative.sequence import TokenSequence

GoOn = Callable[[Sequence[Sequence[float]]], Collection[int]]
"""Which drafts to continue by one more token, as their places, given the probabilities of the tokens of each so far."""


def while_possible(probabilities: Sequence[Sequence[float]]) -> Collection[int]:
    """A `GoOn`: every draft, as far as its limit allows."""
    return range(len(probabilities))


@dataclass(slots=True)
class Draft:
    """Draft tokens. A bad guess costs time, never text."""

    source: str = "none"
    """The drafter's name."""
    tokens: list[int] = field(default_factory=list)
    """What is sent to verification."""
    unsent: list[int] = field(default_factory=list)
    """Tokens drafted after those, but not worth verifying."""
    probabilities: list[float] = field(default_factory=list)
    """Of each token of both: how likely the drafter takes it to be, given those before it."""
    seconds: float = 0.0
    """Time spent inside the decoding library for it."""


class Drafter(Protocol):
    """Guesses what comes next: with a model of its own, from text already seen, or from what the target computes.

    The order of calls for a text: `begin`; `read` for every chunk of the prompt; then for every round `draft`, `read`
    and `accept`, though a drafter may be left out of rounds for as long as it does not pay. `read` is told of every
    batch all the same.
    """

    name: str
    """What statistics, options and costs call it."""
    is_free: bool
    """Whether drafting takes next to no time. The others have to earn the time that their steps take."""
    taps: tuple[int, ...]
    """The target's layers whose hidden states `read` needs; mostly none."""

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """A text begins or goes on: the target's cache keeps the first `num_kept` tokens of its sequence.

        From how many of them the drafter can go on: it may need some of them to be evaluated once more.
        """

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """The target has evaluated tokens, of which the first `num_kept` stay; nothing has been rolled back yet.

        Rows have to be copied: the next batch reuses their memory.
        """

    def backlog(self, sequence: TokenSequence) -> int:
        """How many tokens it would have to decode before its first draft."""

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int], go_on: GoOn) -> list[Draft]:
        """For each sequence at most as many tokens as its limit; `go_on` is asked before each step, the first one too.

        One that knows a single sequence is asked for no more.
        """

    def accept(self, sequence: TokenSequence, sent: int, accepted: int) -> None:
        """Of its last draft the first `sent` tokens were verified, and the first `accepted` of them were right."""
