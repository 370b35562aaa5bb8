"""Drafts what a grammar leaves no choice about."""

from collections.abc import Sequence

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

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int], go_on: GoOn) -> list[Draft]:
        """No tokens without a grammar, or where it leaves a choice."""
        drafts = []
        for sequence, limit in zip(sequences, limits, strict=True):
            grammar = sequence.sampler.grammar
            tokens = grammar.forced(sequence.tokens)[:limit] if grammar and go_on([[]]) else []
            drafts.append(Draft(self.name, tokens, probabilities=[1.0] * len(tokens)))
        return drafts

    def accept(self, sequence: TokenSequence, sent: int, accepted: int) -> None:
        """Nothing to learn."""
