"""A model in a few lines: its logits are a function of every token in its cache."""

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from specgguf.speculative.context import Context
from specgguf.speculative.controller import Plain
from specgguf.speculative.loop import begin, speculate
from specgguf.speculative.sequence import TokenSequence

NUM_TOKENS = 6


def table(seed: int, num_tokens: int = NUM_TOKENS) -> Callable[[Sequence[int]], np.ndarray]:
    """Logits by prefix, drawn once for every prefix."""

    def logits(prefix):
        key = zlib.crc32(np.asarray(prefix, np.int32).tobytes())
        return np.random.default_rng([seed, key]).normal(0, 2, num_tokens).astype(np.float32)

    return logits


def blend(one, other, share: float):
    """Logits between those of two tables: `share` 1 is `one`."""
    return lambda prefix: (share * one(prefix) + (1 - share) * other(prefix)).astype(np.float32)


class ToyContext(Context):
    """`caches` is what a real one would hold in memory; `evaluated` lists the positions decoded, in order.

    The hidden state of a token is its sequence, its position and itself, in every layer of `taps`.
    """

    def __init__(self, logits_of, n_ctx=10_000, n_batch=16, max_rows=8, n_seq=1, taps=(1,)):
        super().__init__(n_ctx, n_batch, max_rows, n_seq)
        self.taps = taps
        self.logits_of = logits_of
        self.caches: list[list[int]] = [[] for _ in range(n_seq)]
        self.evaluated: list[int] = []

        self.can_share = True

    def _share(self, source, sequence, length):
        self.caches[sequence][:] = self.caches[source][:length]

    @property
    def cache(self):
        return self.caches[0]

    def _evaluate(self, parts):
        for cache, tokens in zip(self.caches, self.tokens, strict=True):
            del cache[len(tokens) :]
        rows, hidden = [], []
        for part in parts:
            cache, start = self.caches[part.sequence], len(self.tokens[part.sequence])
            assert len(cache) == start, "a gap in the cache"
            assert max(part.tokens) < len(self.logits_of([])), "an id of another vocabulary"
            cache += part.tokens
            self.evaluated += range(start, len(cache))
            hidden += [(part.sequence, start + i, token) for i, token in enumerate(part.tokens)]
            rows += [self.logits_of(cache[:end]) for end in range(len(cache) - part.rows + 1, len(cache) + 1)]
        return np.array(rows, np.float32), {tap: np.array(hidden, np.float32) for tap in self.taps}


def reference(logits_of, sampler, prompt, eog, max_tokens, n_ctx=10_000):
    """Plain decoding written down once more, without cache, context or loop."""
    tokens = list(prompt)
    while len(tokens) < min(len(prompt) + max_tokens, n_ctx + 1):
        tokens.append(sampler.sample(logits_of(tokens), tokens))
        if tokens[-1] in eog:
            break
    return tokens[len(prompt) :]


def rounds(target, controller, sampler, prompt, eog=(), max_tokens=50):
    """The loop's rounds for one text."""
    sequence = TokenSequence(list(prompt), sampler, len(prompt) + max_tokens)
    begin(target, controller, sequence)
    return (one for one in speculate(target, controller, [sequence], eog) if one.output)


def run(target, controller, sampler, prompt, eog=(), max_tokens=50):
    """All output tokens of the loop, checking after every round that the cache holds what it should."""
    tokens = list(prompt)
    for one in rounds(target, controller, sampler, prompt, eog, max_tokens):
        tokens += one.output
        assert target.tokens[0] == tokens[:-1]
        assert target.cache[: len(tokens) - 1] == tokens[:-1]
        assert len(one.output) == one.accepted + (tokens[-1] not in eog or one.accepted < len(one.output))
    return tokens[len(prompt) :]


PLAIN = Plain()
