"""Drafts from a small model."""

from collections.abc import Container, Sequence

from specgguf.drafters.probability import probability
from specgguf.errors import ContextError
from specgguf.speculative.context import Context, Evaluated, Logits, Part, common_prefix
from specgguf.speculative.drafter import Draft, GoOn
from specgguf.speculative.sequence import TokenSequence


class ModelDrafter:
    """Drafts with a model that has the target's tokenizer and draws the target's noise.

    After a round its cache holds the tokens it drafted except the last. The accepted ones of them stay, and one batch
    evaluates only what came after: no token is decoded twice, and while nobody asks it for a draft
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
        """All of them: its own cache keeps what it holds of the text, be it another sequence's."""
        self._context.adopt(sequence.id, sequence.tokens)
        return num_kept

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Nothing: it computes all it needs itself."""

    def backlog(self, sequence: TokenSequence) -> int:
        """Tokens that its cache does not hold."""
        return len(sequence.tokens) - common_prefix(self._context.tokens[sequence.id], sequence.tokens)

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int], go_on: GoOn) -> list[Draft]:
        """Fewer tokens where the draft's context ends or a text would end. A step is one batch for all sequences."""
        drafts, begin_s = [Draft(self.name) for _ in sequences], self._context.decode_s
        ended = {place for place, sequence in enumerate(sequences) if not self._can_read(sequence)}
        most = [min(limit, self._room(sequence)) for sequence, limit in zip(sequences, limits, strict=True)]
        while True:
            ended |= {place for place, draft in enumerate(drafts) if len(draft.tokens) >= most[place]}
            asked = go_on([draft.probabilities for draft in drafts]) if len(ended) < len(drafts) else ()
            going = [place for place in asked if place not in ended]
            if not going:
                break
            rows = self._step([(sequences[place], drafts[place].tokens) for place in going])
            for place, logits in zip(going, rows, strict=True):
                if not self._add(drafts[place], logits, sequences[place]):
                    ended.add(place)
        made = [draft for draft in drafts if draft.tokens]
        for draft in made:
            draft.seconds = (self._context.decode_s - begin_s) / len(made)
        return drafts

    def accept(self, sequence: TokenSequence, sent: int, accepted: int) -> None:
        """Nothing: the next draft finds out."""

    def _room(self, sequence: TokenSequence) -> int:
        return self._context.n_ctx - len(sequence.tokens) + 1

    def _step(self, drafted: Sequence[tuple[TokenSequence, Sequence[int]]]) -> list[Logits]:
        """The logits, shape (n_vocab,), of what follows each sequence and what is drafted of it."""
        context, share = self._context, self._context.n_batch // len(drafted)
        parts = [Part(one.id, tokens[-1:] or self._missed(one, share), 1) for one, tokens in drafted]
        batch = context.decode(parts)
        for one, tokens in drafted:
            if not tokens:
                context.mark(one.id)
        return [evaluated.logits[0, : self._num_shared] for evaluated in batch]

    def _missed(self, sequence: TokenSequence, most: int) -> Sequence[int]:
        """Its last tokens, at most so many, those before them being in the cache."""
        tokens = sequence.tokens
        held = min(len(tokens) - self.backlog(sequence), len(tokens) - 1)
        if len(tokens) - held > most:
            held = len(tokens) - 1
            self._context.sync(sequence.id, tokens[:held])
        else:
            self._context.truncate(sequence.id, held)
        return tokens[held:]

    def _add(self, draft: Draft, logits: Logits, sequence: TokenSequence) -> bool:
        """Draft the token of these logits; whether another one may follow."""
        try:
            token = sequence.sampler.sample(logits, sequence.tokens, draft.tokens)
        except ContextError:  # nothing the grammar allows, or no numbers: the target may still know better
            return False
        draft.probabilities.append(probability(logits, token, sequence.sampler.temperature))
        draft.tokens.append(token)
        return token not in self._eog

    def _can_read(self, sequence: TokenSequence) -> bool:
        """Whether it has all the tokens that its cache does not hold yet."""
        held = len(sequence.tokens) - self.backlog(sequence)
        return all(token < self._num_shared for token in sequence.tokens[held:])
