"""What a head has been told of and has not read yet."""

from collections.abc import Sequence

import numpy as np

from specgguf.speculative.context import Hidden


class Unread:
    """Tokens that the target has evaluated, one after the other, and their hidden states.

    A head reads them when it drafts, so that one that is parked costs next to nothing.
    """

    def __init__(self) -> None:
        self.end = 0
        """The position after the last token."""
        self.tokens: list[int] = []
        self._rows: list[Hidden] = []

    @property
    def start(self) -> int:
        """The position of the first token."""
        return self.end - len(self.tokens)

    def add(self, start: int, tokens: Sequence[int], rows: Hidden) -> None:
        """Tokens at the positions from `start` on; raises ValueError for a gap. The rows are copied."""
        if start != self.end:
            raise ValueError(f"read up to {self.end}, told of {start}")
        self.tokens += tokens
        self._rows.append(rows.copy())
        self.end += len(tokens)

    @property
    def rows(self) -> Hidden:
        """The hidden states of the tokens, of which there are some."""
        return np.concatenate(self._rows) if len(self._rows) != 1 else self._rows[0]

    def done(self) -> None:
        """All of it has been read."""
        self.rewind(self.end)

    def rewind(self, length: int) -> None:
        """Nothing of the first `length` positions is unread, and nothing is known after them."""
        self.tokens, self._rows, self.end = [], [], length
