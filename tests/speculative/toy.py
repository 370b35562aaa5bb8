"""A model in a few lines: its logits are a function of every token in its cache."""

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from specgguf.speculative.context import Context
from specgguf.speculative.controller import Plain
from specgguf.speculative.loop import speculate

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
    """`cache` is what a real one would hold in memory; `evaluated` lists the positions decoded, in order."""

    def __init__(self, logits_of, n_ctx=10_000, n_batch=16, max_rows=8):
        super().__init__(n_ctx, n_batch, max_rows)
        self.logits_of = logits_of
        self.cache: list[int] = []
        self.evaluated: list[int] = []

    def _evaluate(self, tokens, start, rows):
        assert start <= len(self.cache), "a gap in the cache"
        assert max(tokens) < len(self.logits_of([])), "an id of another vocabulary"
        del self.cache[start:]
        self.cache += tokens
        self.evaluated += range(start, len(self.cache))
        ends = range(len(self.cache) - rows + 1, len(self.cache) + 1)
        return np.array([self.logits_of(self.cache[:end]) for end in ends], np.float32)


def reference(logits_of, sampler, prompt, eog, max_tokens, n_ctx=10_000):
    """Plain decoding written down once more, without cache, context or loop."""
    tokens = list(prompt)
    while len(tokens) < min(len(prompt) + max_tokens, n_ctx + 1):
        tokens.append(sampler.sample(logits_of(tokens), tokens))
        if tokens[-1] in eog:
            break
    return tokens[len(prompt) :]


def run(target, controller, sampler, prompt, eog=(), max_tokens=50):
    """All output tokens of the loop, checking after every round that the cache holds what it should."""
    tokens = list(prompt)
    for step in speculate(target, controller, sampler, prompt, eog, max_tokens):
        tokens += step.output
        assert target.tokens == tokens[:-1]
        assert target.cache[: len(target.tokens)] == target.tokens
        assert len(step.output) == step.accepted + (tokens[-1] not in eog or step.accepted < len(step.output))
    return tokens[len(prompt) :]


PLAIN = Plain()
