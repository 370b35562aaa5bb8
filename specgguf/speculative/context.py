"""What a model's KV cache holds, and how it is made to hold something else."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Logits: TypeAlias = NDArray[np.float32]
"""Shape (rows, n_vocab); row i is the distribution of the token after the i-th token asked for."""

_BLOCK = 256


class Context(ABC):
    """A KV cache with a record of its tokens: `tokens` is what the cache holds.

    Whatever a cache holds beyond `tokens`, because it was cut or a signal interrupted a batch, is removed before
    the next batch. Subclasses say how; the discipline is here, so that the toy context of the tests and
    llama.cpp's obey the same one. The logits returned are views, valid until the next call.
    """

    def __init__(self, n_ctx: int, n_batch: int, max_rows: int) -> None:
        """A cache of `n_ctx` tokens, and of `max_rows` cells more for what fills up a batch."""
        self.tokens: list[int] = []
        self.decode_s = 0.0
        """Seconds spent inside the decoding library so far."""
        self.n_ctx = n_ctx
        self.n_batch = n_batch
        self.max_rows = max_rows

    @abstractmethod
    def _evaluate(self, tokens: Sequence[int], start: int, rows: int) -> Logits:
        """Remove all from position `start` on, append `tokens` there; logits of the last `rows` of them."""

    def decode(self, tokens: Sequence[int], rows: int, width: int = 0) -> Logits:
        """Append at most `n_batch` tokens in one batch and return the logits of the last `rows`.

        A batch narrower than `width` is filled up with copies of its last token behind it, whose rows are computed
        too and then forgotten: so it is computed just as one of that width is.
        """
        padding = max(0, width - len(tokens))
        if not 0 <= rows <= min(len(tokens), self.max_rows - padding):
            raise ValueError(f"{rows} rows of {len(tokens)} + {padding} tokens, at most {self.max_rows}")
        if not 0 < len(tokens) <= min(self.n_batch - padding, self.n_ctx - len(self.tokens)):
            raise ValueError(f"{len(tokens)} tokens for a batch of {self.n_batch}, context {self.n_ctx}")
        logits = self._evaluate([*tokens, *[tokens[-1]] * padding], len(self.tokens), rows + padding)
        self.tokens += tokens
        return logits[:rows]

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens."""
        if not 0 <= length <= len(self.tokens):
            raise ValueError(f"cannot keep {length} of {len(self.tokens)} tokens")
        del self.tokens[length:]

    def sync(self, tokens: Sequence[int], rows: int = 0) -> Logits:
        """Make the cache hold `tokens`, decoding only what it does not hold yet.

        Prefill, the next turn of a chat, and a draft that catches up are all this one function. The logits
        are those of the last `rows` tokens, which are decoded even if the cache holds them.
        """
        self.truncate(min(common_prefix(self.tokens, tokens), len(tokens) - rows))
        logits = np.empty((0, 0), np.float32)
        while (start := len(self.tokens)) < len(tokens):
            chunk = tokens[start : start + self.n_batch]
            logits = self.decode(chunk, rows=max(0, rows + len(chunk) - (len(tokens) - start)))
        return logits


def common_prefix(one: Sequence[int], two: Sequence[int]) -> int:
    """How many tokens the two sequences share from the start on."""
    end = min(len(one), len(two))
    start = 0
    # Whole blocks are compared in C: a history of 32,000 tokens costs a fraction of a millisecond.
    while start < end and one[start : start + _BLOCK] == two[start : start + _BLOCK]:
        start += _BLOCK
    while start < end and one[start] == two[start]:
        start += 1
    return min(start, end)
