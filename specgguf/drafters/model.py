"""Drafts from a small model."""

from collections.abc import Container

from specgguf.drafters.probability import probability
from specgguf.errors import ContextError
from specgguf.speculative.context import Context, Evaluated, Part, common_prefix
from specgguf.speculative.drafter import Draft, GoOn
from specgguf.speculative.sequence import TokenSequence


class ModelDrafter:
    """Drafts with a model that has the target's tokenizer and draws the target's noise.

    After a round its cache holds the tokens it drafted except the last. `sync` keeps the accepted ones of them
    and decodes, in one batch, only what came after: no token is decoded twice, and while nobody asks it for a draft
    it does no work at all.
    """

    name = "model"
    is_free = False
    taps: tuple[int, ...] = ()

    def __init__(self, context: Context, num_shared: int, eog: Container[int]) -> None:
        """`num_shared`: ids below it exist in both vocabularies; no other is drafted or fed to the draft."""
        self._context = context
        self._num_shared = num_shared
        self._eog = eog

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """All of them: `sync` finds out what the cache holds."""
        return num_kept

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Nothing: it computes all it needs itself."""

    def backlog(self, sequence: TokenSequence) -> int:
        """Tokens that its cache does not hold."""
        return len(sequence.tokens) - common_prefix(self._context.tokens[sequence.id], sequence.tokens)

    def draft(self, sequence: TokenSequence, limit: int, go_on: GoOn) -> Draft:
        """Fewer tokens where the draft's context ends or the text would end."""
        context, tokens, draft = self._context, sequence.tokens, Draft(self.name)
        begin_s = context.decode_s
        limit = min(limit, context.n_ctx - len(tokens) + 1)
        while len(draft.tokens) < limit and not (draft.tokens and draft.tokens[-1] in self._eog):
            if not go_on(draft.probabilities):
                break
            if draft.tokens:
                rows = context.decode([Part(sequence.id, draft.tokens[-1:], 1)])[0].logits
            elif self._can_read(sequence):
                rows = context.sync(sequence.id, tokens, rows=1)
            else:
                break
            logits = rows[0, : self._num_shared]
            try:
                token = sequence.sampler.sample(logits, tokens, draft.tokens)
            except ContextError:  # nothing the grammar allows, or no numbers: the target may still know better
                break
            draft.probabilities.append(probability(logits, token, sequence.sampler.temperature))
            draft.tokens.append(token)
        draft.seconds = context.decode_s - begin_s
        return draft

    def accept(self, sequence: TokenSequence, sent: int, accepted: int) -> None:
        """Nothing: `sync` finds out."""

    def _can_read(self, sequence: TokenSequence) -> bool:
        """Whether it has all the tokens that its cache does not hold yet."""
        held = len(sequence.tokens) - self.backlog(sequence)
        return all(token < self._num_shared for token in sequence.tokens[held:])
