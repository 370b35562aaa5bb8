"""What a model's KV cache holds, and how it is made to hold something else."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Logits: TypeAlias = NDArray[np.float32]
"""Shape (rows, n_vocab); row i is the distribution of the token after the i-th token asked for."""
Hidden: TypeAlias = NDArray[np.float32]
"""Shape (tokens, width): what a layer computed for each token."""
NEXTN = -1
"""Stands for a layer where what counts is the target's last hidden state, from which MTP layers go on."""

_BLOCK = 256


class Rollback(StrEnum):
    """How a cache gives tokens back."""

    PARTIAL = "partial"
    """Cells are removed: attention, also within sliding windows."""
    SNAPSHOTS = "snapshots"
    """The state after each token of the last batch is kept: hybrids, where llama.cpp can."""
    CHECKPOINT = "checkpoint"
    """A copy of the state is restored, and what comes after it is evaluated again."""
    NONE = "none"
    """Everything is evaluated again from the start."""


class Part(NamedTuple):
    """Tokens that a batch appends to one sequence, and for how many of the last ones logits are wanted."""

    sequence: int
    tokens: Sequence[int]
    rows: int = 0


class Evaluated(NamedTuple):
    """Tokens of one sequence that have been evaluated, the first of them at position `start`.

    `logits` are those of the last tokens, as many as were asked for; `hidden` are the inputs of layers for all of
    them, by layer, if the context was opened to give some. All are views, valid until the context's next batch.
    """

    sequence: int
    start: int
    tokens: Sequence[int]
    logits: Logits
    hidden: Mapping[int, Hidden] = MappingProxyType({})


class Context(ABC):
    """A KV cache of one or several sequences: `tokens[i]` is what it holds of sequence i.

    Whatever else the cache holds of a sequence, because it was cut or a signal interrupted a batch, is removed before
    the next batch. Subclasses say how; the discipline is here, so that the toy context of the tests and llama.cpp's
    obey the same one.
    """

    def __init__(self, n_ctx: int, n_batch: int, max_rows: int, n_seq: int = 1) -> None:
        """A cache of `n_seq` sequences of `n_ctx` tokens each, and of `max_rows` cells more for padding.

        `n_batch`: tokens of a batch at most; `max_rows`: rows of logits of a batch at most.
        """
        self.tokens: list[list[int]] = [[] for _ in range(n_seq)]
        self.decode_s = 0.0
        """Seconds spent inside the decoding library so far."""
        self.rollback_s = 0.0
        """Seconds spent on evaluating tokens again that a cut had taken along; not in `decode_s`."""
        self.rollback = Rollback.PARTIAL
        self.can_share = False
        """Whether a sequence can have tokens of another without evaluating them."""
        self.apart = False
        """Whether every batch that gives rows has one token of each sequence, a copy of some other where none is
        asked for: so its rows depend in no bit on what the other sequences hold."""
        self.n_ctx = n_ctx
        self.n_batch = n_batch
        self.max_rows = max_rows

    @abstractmethod
    def _evaluate(self, parts: Sequence[Part]) -> tuple[Logits, Mapping[int, Hidden]]:
        """Cut every sequence back to its tokens, then append `parts`.

        The logits wanted, and by layer the hidden states of all tokens if the context gives some, both in the order of
        `parts`.
        """

    def mark(self, sequence: int, before_draft: bool = False) -> None:  # noqa: B027 (most caches need nothing)
        """The sequence may be cut back to what it holds now: prepare for that, where it takes preparation."""

    def _share(self, source: int, sequence: int, length: int) -> None:
        """Let a sequence have the first `length` tokens of another, and no more; asked for only if `can_share`."""
        raise NotImplementedError

    def decode(self, parts: Sequence[Part], width: int = 0) -> list[Evaluated]:
        """Append tokens to one or several sequences, in one batch.

        A batch narrower than `width` is padded with copies of its last token, whose rows are computed too and then
        forgotten: so it is computed just as one of that width is. Raises ValueError for what has no room.
        """
        count, num_rows = sum(len(part.tokens) for part in parts), sum(part.rows for part in parts)
        padding = len(self.tokens) - len(parts) if self.apart and num_rows else max(0, width - count)
        if any(not 0 <= part.rows <= len(part.tokens) for part in parts) or num_rows > self.max_rows - padding:
            raise ValueError(f"{num_rows} rows of {count} + {padding} tokens, at most {self.max_rows}")
        if not 0 < count <= self.n_batch - padding:
            raise ValueError(f"{count} + {padding} tokens for a batch of {self.n_batch}")
        if any(len(part.tokens) > self.n_ctx - len(self.tokens[part.sequence]) for part in parts):
            raise ValueError(f"no room for {count} tokens in a context of {self.n_ctx}")
        for part in parts:
            if part.rows > 1:  # draft tokens, of which some may be rejected
                self.mark(part.sequence, before_draft=True)
        if self.apart and num_rows:
            return self._appended(parts, self._evaluate_apart(parts), {})
        padded = _padded(parts, padding) if padding else parts
        logits, hidden = self._evaluate(padded)
        return self._appended(parts, logits, hidden)

    def _evaluate_apart(self, parts: Sequence[Part]) -> Logits:
        """The logits of parts of one token each."""
        if any(len(part.tokens) != 1 for part in parts):
            raise ValueError("where sequences are kept apart, each has one token of a batch")
        tokens = {part.sequence: part.tokens for part in parts}
        logits, _ = self._evaluate([Part(one, tokens.get(one, parts[0].tokens), 1) for one in range(len(self.tokens))])
        return logits[[part.sequence for part in parts]]

    def _appended(self, parts: Sequence[Part], logits: Logits, hidden: Mapping[int, Hidden]) -> list[Evaluated]:
        """Record what the batch has appended, and hand out the rows."""
        evaluated, row, at = [], 0, 0
        for sequence, tokens, rows in parts:
            start = len(self.tokens[sequence])
            states = {layer: rows_of[at : at + len(tokens)] for layer, rows_of in hidden.items()}
            evaluated.append(Evaluated(sequence, start, tokens, logits[row : row + rows], states))
            self.tokens[sequence] += tokens
            row, at = row + rows, at + len(tokens)
        return evaluated

    def truncate(self, sequence: int, length: int) -> None:
        """Keep the first `length` tokens of a sequence."""
        tokens = self.tokens[sequence]
        if not 0 <= length <= len(tokens):
            raise ValueError(f"cannot keep {length} of {len(tokens)} tokens")
        del tokens[length:]

    def adopt(self, sequence: int, tokens: Sequence[int]) -> int:
        """Make a sequence hold as much of the beginning of `tokens` as any sequence holds; how much that is.

        Nothing is evaluated for it.
        """
        lengths = {one: common_prefix(self.tokens[one], tokens) for one in self._sources(sequence)}
        best = max(lengths, key=lambda one: lengths[one])
        if best == sequence:
            self.truncate(sequence, lengths[best])
        else:
            self._share(best, sequence, lengths[best])
            self.tokens[sequence][:] = tokens[: lengths[best]]
        return lengths[best]

    def _sources(self, sequence: int) -> list[int]:
        """Whose tokens a sequence can have, itself first."""
        others = range(len(self.tokens)) if self.can_share else ()
        return [sequence, *(one for one in others if one != sequence)]

    def clear(self) -> None:
        """Forget all sequences."""
        for sequence in range(len(self.tokens)):
            self.truncate(sequence, 0)

    def feed(self, sequence: int, tokens: Sequence[int], rows: int = 0) -> Iterator[Evaluated]:
        """Make a sequence hold `tokens`, chunk by chunk, decoding only what it does not hold yet.

        The logits wanted are those of the last `rows` tokens, which are decoded even if the cache holds them.
        """
        held = self.tokens[sequence]
        self.truncate(sequence, min(common_prefix(held, tokens), len(tokens) - rows))
        while (start := len(held)) < len(tokens):
            chunk = tokens[start : start + self.n_batch]
            wanted = max(0, rows + len(chunk) - (len(tokens) - start))
            yield from self.decode([Part(sequence, chunk, wanted)])
        self.mark(sequence)

    def sync(self, sequence: int, tokens: Sequence[int], rows: int = 0) -> Logits:
        """The same at once: the logits of the last `rows` tokens.

        Prefill, the next turn of a chat, and a draft that catches up are all this one function.
        """
        logits = np.empty((0, 0), np.float32)
        for evaluated in self.feed(sequence, tokens, rows):
            logits = evaluated.logits
        return logits


def _padded(parts: Sequence[Part], padding: int) -> list[Part]:
    *before, (sequence, tokens, rows) = parts
    return [*before, Part(sequence, [*tokens, *[tokens[-1]] * padding], rows + padding)]


def common_prefix(one: Sequence[int], two: Sequence[int]) -> int:
    """How many tokens the two sequences share from the start on."""
    end = min(len(one), len(two))
    start = 0
    # Whole blocks are compared in C: a history of 32,000 tokens costs a fraction of a millisecond.
    while start < end and one[start : start + _BLOCK] == two[start : start + _BLOCK]:
        start += _BLOCK
    while start < end and one[start] == two[start]:
        start += 1
    return min(start, end)
