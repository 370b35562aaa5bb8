"""Drafts from multi-token prediction: layers that a target was trained with to guess what comes after the next token.

(Gloeckle et al., arXiv 2404.19737; in the form of DeepSeek-V3, arXiv 2412.19437.)
"""

from collections.abc import Container

import numpy as np

from specgguf.drafters.head import Head
from specgguf.drafters.head_drafter import HeadDrafter, in_batches, shifted
from specgguf.speculative.context import NEXTN, Evaluated, Hidden
from specgguf.speculative.drafter import Draft, GoOn
from specgguf.speculative.sequence import TokenSequence


class MtpDrafter(HeadDrafter):
    """The cell at position p is of the token there and of what the target computed one position before.

    One layer drafts as many tokens as wanted, from its own hidden states. Of several layers, each drafts the token of
    its number, and has cells of its own.
    """

    name = "mtp"

    def __init__(self, head: Head, eog: Container[int], num_layers: int = 1) -> None:
        super().__init__(head, (NEXTN,), eog)
        self._num_layers = num_layers
        self._row: Hidden = np.zeros(head.width, np.float32)  # of the last position read; zeros before the first
        self._filled = 0  # positions that have a cell

    def _rewind(self, length: int) -> int:
        self._filled = min(self._filled, length)
        self._head.cut(self._filled)
        restart = max(0, self._filled - 1)  # its cell is right, but what the target computed there is gone
        self._unread.rewind(restart)
        self._row = np.zeros(self._head.width, np.float32)
        return restart

    def _catch_up(self) -> None:
        start, skip = self._filled, self._filled - self._unread.start
        rows = self._unread.rows
        tokens, before = self._unread.tokens[skip:], shifted(self._row, rows)[skip:]
        for layer in range(self._num_layers):
            self._head.cut(start)
            if self._num_layers > 1:
                self._head.use_layer(layer)
            for at, part, part_rows in in_batches(tokens, before, self._head.n_batch):
                self._head.decode(part, part_rows, start + at)
        self._row, self._filled = rows[-1], self._unread.end
        self._unread.done()

    def _guess(self, sequence: TokenSequence, limit: int, go_on: GoOn, draft: Draft) -> None:
        at, rows = self._unread.end, self._row[None]
        self._head.cut(at)
        if self._num_layers == 1:
            self._chain(at, 1, rows, sequence, limit, go_on, draft)
            return
        for layer in range(min(limit, self._num_layers)):
            if layer and not go_on([draft.probabilities]):
                break
            self._head.cut(at)
            self._head.use_layer(layer)
            logits = self._head.decode([sequence.tokens[-1], *draft.tokens], rows, at, with_logits=True)
            if logits is None or not self._add(draft, logits[-1], sequence):
                break
            rows = np.concatenate([rows, self._head.rows(len(logits))[-1:]])


class AssistantDrafter(HeadDrafter):
    """A head of Gemma 4's kind, in a file of its own: it reads the target's own cells, and has none."""

    name = "mtp"

    def __init__(self, head: Head, eog: Container[int]) -> None:
        super().__init__(head, (NEXTN,), eog)
        self._row: Hidden = np.zeros(head.width, np.float32)

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Only the last row counts."""
        if evaluated.hidden:
            self._row = evaluated.hidden[NEXTN][num_kept - 1].copy()
        self._unread.rewind(evaluated.start + num_kept)

    def _rewind(self, length: int) -> int:
        length = max(0, length - 1)
        self._unread.rewind(length)
        return length

    def _catch_up(self) -> None:
        """Nothing is ever unread."""

    def _guess(self, sequence: TokenSequence, limit: int, go_on: GoOn, draft: Draft) -> None:
        at = self._unread.end
        if at == 0:
            return  # the target has computed nothing: a prompt of one token
        self._chain(at, 0, self._row[None], sequence, limit, go_on, draft)
