"""How many tokens to draft."""

from dataclasses import dataclass
from typing import Protocol


class Controller(Protocol):
    """Chooses the draft length, round by round."""

    def limit(self) -> int:
        """The most tokens to draft in the next round."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same length in every round."""

    num_draft: int

    def limit(self) -> int:
        """Always `num_draft`."""
        return self.num_draft
