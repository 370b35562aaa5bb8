"""Drafts from an EAGLE-3 head (Li et al., arXiv 2503.01840): one layer that reads three of the target's."""

from collections.abc import Container, Sequence

import numpy as np

from specgguf.drafters.head import Head
from specgguf.drafters.head_drafter import HeadDrafter, in_batches
from specgguf.speculative.context import Hidden
from specgguf.speculative.drafter import Draft, GoOn
from specgguf.speculative.sequence import TokenSequence


class Eagle3Drafter(HeadDrafter):
    """The cell at position p is of the *next* token and of what the target computed at p.

    So the last position read has no cell until it is known what follows; the draft's first step makes that cell, which
    stays. From then on the head's own hidden states stand for the target's.
    """

    name = "eagle3"

    def __init__(self, head: Head, taps: tuple[int, ...], eog: Container[int]) -> None:
        super().__init__(head, taps, eog)
        self._filled = 0  # positions that have a cell
        self._next: Sequence[int] = ()  # the token after the last position read, if a draft has made its cell of it
        self._last: Hidden = np.empty((0, head.width), np.float32)  # of the last position read, if it has no cell

    def _rewind(self, length: int) -> int:
        # The last cell was made of a token that goes; what the target computed at the last position is gone.
        self._filled = max(0, min(self._filled, length - 1))
        self._unread.rewind(self._filled)
        self._head.cut(self._filled)
        self._last = self._last[:0]
        return self._filled

    def _catch_up(self) -> None:
        """Cells for all positions read but the last."""
        start, tokens, taps = self._unread.start, self._unread.tokens, self._unread.rows
        encoded = [self._head.encode(part) for _, _, part in in_batches(tokens, taps, self._head.n_batch)]
        rows = np.concatenate([self._last, *encoded])
        following = tokens if len(self._last) else tokens[1:]
        first = start - len(self._last)  # the position of the first row
        if following[:1] != self._next:
            self._filled = first  # another token came
        self._head.cut(self._filled)
        skip = self._filled - first  # it has its cell where it was drafted from
        for at, part, part_rows in in_batches(following[skip:], rows[skip:-1], self._head.n_batch):
            self._head.decode(part, part_rows, self._filled + at)
        self._last, self._filled = rows[-1:], first + len(rows) - 1
        self._unread.done()

    def _guess(self, sequence: TokenSequence, limit: int, go_on: GoOn, draft: Draft) -> None:
        at = self._unread.end - 1
        if not len(self._last):
            return  # nothing was read: a prompt of one token
        self._head.cut(at)
        self._chain(at, 1, self._last, sequence, limit, go_on, draft)
        self._filled, self._next = at + 1, sequence.tokens[-1:]
