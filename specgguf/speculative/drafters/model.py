"""Who guesses the next tokens."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specgguf.errors import ContextError
from specgguf.speculative.context import Context, common_prefix
from specgguf.speculative.sampling import Sampler

Wish = Callable[[Sequence[float]], bool]
"""Whether to draft one more token, given the draft's probabilities of those drafted so far."""


@dataclass(slots=True)
class Draft:
    """Guessed tokens. A bad guess costs time, never text."""

    source: str = "none"
    tokens: list[int] = field(default_factory=list)
    unsent: list[int] = field(default_factory=list)
    """Tokens drafted behind those, but not worth verifying."""
    probabilities: list[float] = field(default_factory=list)
    """How sure the drafter was of each of both."""
    seconds: float = 0.0
    """Time spent on it."""


class ModelDrafter:
    """Drafts with a small model that has the target's tokenizer and draws the target's noise.

    After a round its cache holds the tokens it drafted except the last. `sync` keeps the accepted ones of them
    and decodes, in one batch, only what came after: no token is decoded twice, and one that is not asked for a while
    does no work at all.
    """

    source = "model"

    def __init__(self, context: Context, sampler: Sampler, num_shared: int, eog: Container[int]) -> None:
        """`num_shared`: ids below it exist in both vocabularies; no other is drafted or fed to the draft."""
        self._context = context
        self._sampler = sampler
        self._num_shared = num_shared
        self._eog = eog

    def behind(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` its cache does not hold."""
        return len(tokens) - common_prefix(self._context.tokens, tokens)

    def draft(self, tokens: Sequence[int], limit: int, want_more: Wish = lambda _: True) -> Draft:
        """At most `limit` tokens, fewer where the draft's context ends, the text would end, or no more are wanted."""
        draft = Draft(self.source)
        begin_s = self._context.decode_s
        limit = min(limit, self._context.n_ctx - len(tokens) + 1)
        while len(draft.tokens) < limit and not (draft.tokens and draft.tokens[-1] in self._eog):
            if not want_more(draft.probabilities):
                break
            if not draft.tokens:
                held = common_prefix(self._context.tokens, tokens)
                if any(token >= self._num_shared for token in tokens[held:]):
                    break
                logits = self._context.sync(tokens, rows=1)
            else:
                logits = self._context.decode(draft.tokens[-1:], rows=1)
            try:
                token = self._sampler.sample(logits[0, : self._num_shared], tokens, draft.tokens)
            except ContextError:  # nothing the grammar allows, or no numbers: the target may still know better
                break
            draft.probabilities.append(_probability(logits[0, : self._num_shared], token, self._sampler.temperature))
            draft.tokens.append(token)
        draft.seconds = self._context.decode_s - begin_s
        return draft


def _probability(logits: NDArray[np.float32], token: int, temperature: float) -> float:
    """How likely `token` is, truncations aside, at this temperature (at 1 for greedy decoding)."""
    temperature = temperature or 1.0
    # Each of the others is less than a hundred-thousandth as likely, and all together hardly ever a hundredth.
    near = logits[logits > logits[token] - np.float32(12 * temperature)]
    # A grammar may force a token that is next to impossible: no overflow then.
    return float(1 / np.exp(np.minimum((near - logits[token]) / temperature, 80)).sum())
