"""What a draft head computes: a small network that reads what the target has computed."""

from collections.abc import Sequence
from typing import Protocol

from specgguf.speculative.context import Hidden, Logits


class Head(Protocol):
    """A head's own context: cells by position, batches of tokens, of rows, or of both."""

    decode_s: float
    """Seconds spent inside the decoding library so far."""
    n_ctx: int
    n_batch: int
    width: int
    """Values of a row that `decode` takes and `rows` gives."""

    def decode(
        self, tokens: Sequence[int] | None, rows: Hidden | None, start: int, with_logits: bool = False
    ) -> Logits | None:
        """Evaluate a batch at the positions from `start` on; the logits of all of it, if they are wanted.

        `rows`: what goes in beside the tokens, or in their place, shape (len(tokens), width). The logits are a view,
        valid until the next call.
        """

    def rows(self, count: int) -> Hidden:
        """The last batch's own hidden states, of which it has `count` with logits: a copy, shape (count, width)."""

    def encode(self, rows: Hidden) -> Hidden:
        """What the head makes of the target's hidden states before it decodes: a copy, shape (len(rows), width)."""

    def cut(self, length: int) -> None:
        """Keep the cells of the first `length` positions."""

    def use_layer(self, number: int) -> None:
        """Of several heads in one file, decode with this one, counted from 0."""
