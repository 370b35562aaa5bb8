"""A text in the making."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specgguf.sampling.sampler import Sampler


class Chooser(Protocol):
    """A `Sampler`, or what stands around one."""

    def sample(self, logits: NDArray[np.float32], tokens: Sequence[int], ahead: Sequence[int] = ()) -> int:
        """As `Sampler.sample`."""


@dataclass(slots=True, eq=False)
class TokenSequence:
    """The tokens of a prompt and of its answer so far, and how the answer is chosen."""

    tokens: list[int]
    sampler: Sampler
    end: int
    """How many tokens there may be in all."""
    chooser: Chooser | None = None
    """Makes the target's choices instead of `sampler`, with which drafts are made."""
    id: int = 0
    """Which sequence of the cache it is."""

    @property
    def room(self) -> int:
        """How many tokens may still come."""
        return self.end - len(self.tokens)

    @property
    def target_chooser(self) -> Chooser:
        """What makes the target's choices."""
        return self.chooser or self.sampler
