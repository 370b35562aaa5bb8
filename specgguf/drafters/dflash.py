"""Drafts of a whole block at once: DFlash, and DSpark."""

from collections.abc import Container

from specgguf.drafters.head import Head
from specgguf.drafters.head_drafter import HeadDrafter, in_batches
from specgguf.speculative.drafter import Draft, GoOn
from specgguf.speculative.sequence import TokenSequence


class DflashDrafter(HeadDrafter):
    """Its cells are made of what the target computed, nothing else; a block of masks is filled in one decode."""

    name = "dflash"

    def __init__(
        self, head: Head, taps: tuple[int, ...], eog: Container[int], mask: int, block_size: int, from_anchor: bool
    ) -> None:
        """`mask`: the token that stands for a draft token; `block_size`: tokens of a block, with the last known one.

        `from_anchor`: whether the row of a token tells the next one (DSpark), and not the token at its own place.
        """
        super().__init__(head, taps, eog)
        self._mask = mask
        self._from_anchor = from_anchor
        self._most = block_size if from_anchor else block_size - 1

    def _rewind(self, length: int) -> int:
        length = min(length, self._unread.start)
        self._unread.rewind(length)
        self._head.cut(length)
        return length

    def _catch_up(self) -> None:
        start = self._unread.start
        self._head.cut(start)
        for at, _, part in in_batches(self._unread.tokens, self._unread.rows, self._head.n_batch):
            self._head.decode(None, part, start + at)
        self._unread.done()

    def _guess(self, sequence: TokenSequence, limit: int, go_on: GoOn, draft: Draft) -> None:
        count, at = min(limit, self._most), self._unread.end
        masks = count - 1 if self._from_anchor else count
        self._head.cut(at)
        logits = self._head.decode([sequence.tokens[-1], *[self._mask] * masks], None, at, with_logits=True)
        if logits is not None:
            for row in logits if self._from_anchor else logits[1:]:
                if not self._add(draft, row, sequence):
                    break
