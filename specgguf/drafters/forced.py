"""Drafts what a grammar leaves no choice about."""

from specgguf.speculative.context import Evaluated
from specgguf.speculative.drafter import Draft, GoOn
from specgguf.speculative.sequence import TokenSequence


class ForcedDrafter:
    """Proposes the tokens that the sequence's grammar forces: nearly always right, and known without a model."""

    name = "forced"
    is_free = True
    taps: tuple[int, ...] = ()

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """All of them."""
        return num_kept

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Nothing: the grammar knows."""

    def backlog(self, sequence: TokenSequence) -> int:
        """Nothing has to be decoded."""
        return 0

    def draft(self, sequence: TokenSequence, limit: int, go_on: GoOn) -> Draft:
        """No tokens without a grammar, or where it leaves a choice."""
        draft = Draft(self.name)
        grammar = sequence.sampler.grammar
        for token in grammar.forced(sequence.tokens)[:limit] if grammar else []:
            if not go_on(draft.probabilities):
                break
            draft.tokens.append(token)
            draft.probabilities.append(1.0)
        return draft

    def accept(self, sequence: TokenSequence, sent: int, accepted: int) -> None:
        """Nothing to learn."""
