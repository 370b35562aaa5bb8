"""What all drafts from heads have in common."""

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence

import numpy as np

from specgguf.drafters.head import Head
from specgguf.drafters.probability import probability
from specgguf.drafters.unread import Unread
from specgguf.errors import ContextError
from specgguf.speculative.context import Evaluated, Hidden, Logits
from specgguf.speculative.drafter import Draft, GoOn
from specgguf.speculative.sequence import TokenSequence


class HeadDrafter(ABC):
    """Reads every batch of the target, late: just before it drafts, or when there is a whole batch to read.

    It knows one sequence. Cells of what was drafted, or of what was interrupted, are cut off before the next batch.
    """

    name: str
    is_free = False

    def __init__(self, head: Head, taps: tuple[int, ...], eog: Container[int]) -> None:
        """`taps`: the target's layers that it reads."""
        self.taps = taps
        self._head = head
        self._eog = eog
        self._unread = Unread()

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """How many of the target's tokens it can go on from: it may have to read the last one once more."""
        if num_kept == self._unread.end:
            return num_kept
        return self._rewind(num_kept)

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Take note; what was read before a cut that nobody told of is not built upon."""
        rows = [evaluated.hidden[tap][:num_kept] for tap in self.taps]
        self._unread.add(evaluated.start, evaluated.tokens[:num_kept], np.concatenate(rows, axis=1))
        if len(self._unread.tokens) >= self._head.n_batch:
            self._catch_up()

    def backlog(self, sequence: TokenSequence) -> int:
        """Tokens that it has not read."""
        return len(self._unread.tokens)

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int], go_on: GoOn) -> list[Draft]:
        """Fewer tokens where the head's context ends or the text would end."""
        (sequence,), draft = sequences, Draft(self.name)
        begin_s = self._head.decode_s
        limit = min(limits[0], self._head.n_ctx - len(sequence.tokens))
        if limit > 0 and self._unread.end == len(sequence.tokens) - 1 and go_on([[]]):
            if self._unread.tokens:
                self._catch_up()
            self._guess(sequence, limit, go_on, draft)
        draft.seconds = self._head.decode_s - begin_s
        return [draft]

    def accept(self, sequence: TokenSequence, sent: int, accepted: int) -> None:  # noqa: B027 (complete as it is)
        """Nothing: `read` tells."""

    def _add(self, draft: Draft, logits: Logits, sequence: TokenSequence) -> bool:
        """Draft the token of these logits, shape (n_vocab,); whether another one may follow."""
        try:
            token = sequence.sampler.sample(logits, sequence.tokens, draft.tokens)
        except ContextError:  # nothing the grammar allows, or no numbers: the target may still know better
            return False
        draft.probabilities.append(probability(logits, token, sequence.sampler.temperature))
        draft.tokens.append(token)
        return token not in self._eog

    def _chain(
        self, at: int, step: int, row: Hidden, sequence: TokenSequence, limit: int, go_on: GoOn, draft: Draft
    ) -> None:
        """Draft token by token, from `row`, shape (1, width), and then from the head's own hidden states.

        The first token is at the position `at`, each further one `step` positions on.
        """
        token = sequence.tokens[-1]
        while True:
            logits = self._head.decode([token], row, at, with_logits=True)
            if logits is None or not self._add(draft, logits[0], sequence):
                return
            if len(draft.tokens) == limit or not go_on([draft.probabilities]):
                return
            token, row, at = draft.tokens[-1], self._head.rows(1), at + step

    @abstractmethod
    def _rewind(self, length: int) -> int:
        """Forget what comes after `length` positions; how many it can go on from, `length` or fewer."""

    @abstractmethod
    def _catch_up(self) -> None:
        """Read what is unread; from its start again, should that have been interrupted."""

    @abstractmethod
    def _guess(self, sequence: TokenSequence, limit: int, go_on: GoOn, draft: Draft) -> None:
        """Fill the draft; nothing is unread, and `go_on` has been asked for the first token."""


def shifted(first: Hidden, rows: Hidden) -> Hidden:
    """`first`, shape (width,), then all rows but the last."""
    return np.concatenate([first[None], rows[:-1]])


def in_batches(tokens: Sequence[int], rows: Hidden, size: int) -> list[tuple[int, Sequence[int], Hidden]]:
    """Parts of at most `size` tokens, each with its place."""
    return [(at, tokens[at : at + size], rows[at : at + size]) for at in range(0, len(tokens), size)]
