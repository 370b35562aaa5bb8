"""Who guesses the next tokens."""

from collections.abc import Container, Sequence
from typing import Protocol

from specgguf.core.context import Context, common_prefix
from specgguf.core.sampling import Sampler


class Drafter(Protocol):
    """Guesses what comes next. A bad guess costs time, never text."""

    @property
    def source(self) -> str:
        """The name under which `Stats` counts its drafts."""

    def draft(self, tokens: Sequence[int], limit: int) -> list[int]:
        """At most `limit` tokens that may follow `tokens`."""


class NoDrafter:
    """Never guesses: the loop is then plain decoding."""

    source = "none"

    def draft(self, tokens: Sequence[int], limit: int) -> list[int]:
        """No tokens."""
        return []


class ModelDrafter:
    """Drafts with a small model that has the target's tokenizer and draws the target's noise.

    After a round its cache holds the tokens it drafted except the last. `sync` keeps the accepted ones of them
    and decodes, in one batch, only what came after: no token is decoded twice.
    """

    source = "model"

    def __init__(self, context: Context, sampler: Sampler, num_shared: int, eog: Container[int]) -> None:
        """`num_shared`: ids below it exist in both vocabularies; no other is drafted or fed to the draft."""
        self._context = context
        self._sampler = sampler
        self._num_shared = num_shared
        self._eog = eog

    def draft(self, tokens: Sequence[int], limit: int) -> list[int]:
        """At most `limit` tokens, fewer where the draft's context ends or it would end the text."""
        limit = min(limit, self._context.n_ctx - len(tokens) + 1)
        draft: list[int] = []
        while len(draft) < limit and not (draft and draft[-1] in self._eog):
            if not draft:
                held = common_prefix(self._context.tokens, tokens)
                if any(token >= self._num_shared for token in tokens[held:]):
                    return []
                logits = self._context.sync(tokens, rows=1)
            else:
                logits = self._context.decode(draft[-1:], rows=1)
            draft.append(self._sampler.sample(logits[0, : self._num_shared], tokens, draft))
        return draft
