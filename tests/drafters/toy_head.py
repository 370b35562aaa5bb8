"""A head in a few lines: its logits are a function of every cell it has, as the cells of a real one are."""

import zlib

import numpy as np

from tests.speculative.toy import NUM_TOKENS

WIDTH = 3


def key(*values):
    return zlib.crc32(repr(values).encode())


def hidden_state(prefix, tap):
    """What a target computes for the last token of a prefix: no two prefixes have the same."""
    return np.array([len(prefix) - 1, prefix[-1], key(list(prefix), tap) % 4093], np.float32)


class ToyHead:
    """`cells[layer]` lists what the first `length` cells hold, and some that were cut: a token, a row, or both.

    As in llama.cpp only the next position can be filled, and the layers share positions: one fills its part of cells
    that another one has filled before it only if they are cut in between, which leaves them as they are.
    `interruption` counts the calls down to one that fails, be it before or after its cells are there.
    """

    def __init__(self, n_batch=4, n_layers=1, has_cells=True):
        self.n_batch = n_batch
        self.n_ctx = 1000
        self.width = WIDTH
        self.decode_s = 0.0
        self.cells = [[] for _ in range(n_layers)]
        self.layer, self.length = 0, 0
        self.has_cells = has_cells
        self.batches = []
        """Layer, position, tokens and rows of all of them, and the rows that came of it."""
        self.interruption, self.interrupted_after = None, False
        self._logits, self._rows = np.empty((0, NUM_TOKENS), np.float32), None

    def decode(self, tokens, rows, start, with_logits=False):
        count = len(tokens if tokens is not None else rows)
        assert 0 < count <= self.n_batch
        assert rows is None or len(rows) == count
        self._tick(after=False)
        cells = self.cells[self.layer]
        if self.has_cells:
            assert start == self.length, "a gap in the cells, or a position twice"
            assert len(cells) >= start, "a gap in the cells of one layer"
        given = [None] * count if tokens is None else tokens
        beside = [None] * count if rows is None else [tuple(row.tolist()) for row in rows]
        seen = [*cells[:start], *zip(given, beside, strict=True)]
        states = [
            np.random.default_rng([self.layer, start, key(seen[:end])])
            for end in range(len(seen) - count + 1, len(seen) + 1)
        ]
        if self.has_cells:
            cells[:] = [*seen, *cells[len(seen) :]]
            self.length = len(seen)
        self._tick(after=True)
        self._logits[:] = np.nan  # views of what came before are no longer valid
        self._logits = np.array([state.normal(0, 2, NUM_TOKENS) for state in states], np.float32)
        self._rows = np.array([state.normal(0, 2, self.width) for state in states], np.float32)
        self.batches.append((self.layer, start, tokens, rows, self._rows))
        return self._logits if with_logits else None

    def _tick(self, after):
        if self.interruption is not None and after is self.interrupted_after:
            self.interruption -= 1
            if self.interruption < 0:
                self.interruption = None
                raise KeyboardInterrupt

    def rows(self, count):
        assert count == len(self._rows)
        return self._rows.copy()

    def encode(self, rows):
        assert 0 < len(rows) <= self.n_batch
        self._tick(after=False)
        return encoded(rows)

    def cut(self, length):
        self.length = min(self.length, length)

    def use_layer(self, number):
        assert 0 <= number < len(self.cells)
        self.layer = number


def encoded(rows):
    return (rows[..., :WIDTH] + rows[..., -WIDTH:]) * np.float32(0.5)
