"""Rows that depend on what runs beside them are found out."""

import numpy as np
import pytest

from specgguf.exact.neighbours import neighbours_matter
from tests.speculative.toy import NUM_TOKENS, ToyContext, table

TEXT = [number % NUM_TOKENS for number in range(9)]


class Leaking(ToyContext):
    """Its rows depend on `leak` of the batch's parts and the row's own."""

    def __init__(self, leak, n_seq):
        super().__init__(table(1), n_seq=n_seq)
        self.apart = True
        self.leak = leak

    def _evaluate(self, parts):
        logits, hidden = super()._evaluate(parts)
        asked = [part for part in parts if part.rows]
        lengths = [len(cache) for cache in self.caches]
        leaked = [[self.leak(asked, part, lengths)] for part in asked]
        return logits + np.array(leaked, np.float32) if asked else logits, hidden


@pytest.mark.parametrize("n_seq", [2, 3, 6])
@pytest.mark.parametrize(
    ("leak", "found"),
    [
        (lambda parts, own, lengths: 0, False),
        (lambda parts, own, lengths: sum(lengths), True),
        (lambda parts, own, lengths: 1e-4 * lengths[-1], True),
        (lambda parts, own, lengths: 1e-4 * own.sequence, True),
        (lambda parts, own, lengths: lengths[own.sequence], False),
    ],
    ids=["nothing", "all lengths", "the last's length", "its place", "its own length"],
)
def test_a_leak_is_found(leak, found, n_seq):
    context = Leaking(leak, n_seq)
    assert neighbours_matter(context, TEXT) is found
    assert context.tokens == [[]] * n_seq


def test_a_text_of_one_token_will_do():
    assert not neighbours_matter(Leaking(lambda *_: 0, 3), [2])
