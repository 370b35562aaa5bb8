"""Whether what runs beside a text in a batch changes a bit of it on this device."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from specgguf.speculative.context import Context, Part

_TOKENS = 16


def neighbours_matter(context: Context, tokens: Sequence[int]) -> bool:
    """Whether a row depends on the other sequences of the batch, or on which of them is its own.

    `context` has several sequences and is empty afterwards; `tokens` are of any text that is not empty. Raises
    ContextError where llama.cpp cannot decode them.
    """
    text, last = (list(tokens) * _TOKENS)[:_TOKENS], len(context.tokens) - 1
    others = {1 + number: text[: 3 + 4 * number] for number in range(min(3, last))}
    alone, beside = _row(context, 0, text, {}), _row(context, 0, text, others)
    elsewhere = _row(context, last, text, {0: text[:5]})
    context.clear()
    return not (np.array_equal(alone, beside) and np.array_equal(alone, elsewhere))


def _row(
    context: Context, sequence: int, text: Sequence[int], others: Mapping[int, Sequence[int]]
) -> NDArray[np.float32]:
    """The logits after a text, decoded in one batch with the last tokens of others."""
    context.clear()
    texts = {**others, sequence: text}
    for one, held in texts.items():
        context.sync(one, held[:-1])
    batch = context.decode([Part(one, held[-1:], 1) for one, held in texts.items()])
    return next(evaluated.logits[0].copy() for evaluated in batch if evaluated.sequence == sequence)
