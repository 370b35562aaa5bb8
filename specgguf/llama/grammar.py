"""Grammars, by llama.cpp's own engine: which tokens may follow which text."""

import ctypes
import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np
from llama_cpp import llama_cpp as lib
from numpy.typing import NDArray

from specgguf.errors import UsageError
from specgguf.llama import gbnf
from specgguf.llama.library import take_errors
from specgguf.llama.schema import schema_to_gbnf
from specgguf.llama.vocab import Vocab
from specgguf.speculative.context import common_prefix

_NUM_STATES = 64
"""How many states before the last one are kept to go back to: more than a draft has tokens."""

_MANY = 8192
"""So many ids at once are asked about by their beginnings, which is faster,"""
_OFTEN = 10
"""once it happened so often: to find the beginnings takes as long as some answers without them."""

_CANDIDATE = np.dtype(lib.llama_token_data)


@dataclass(frozen=True, slots=True)
class GrammarText:
    """A grammar known to be usable; no model is needed to know it."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises UsageError if `text` is no GBNF that llama.cpp can use."""
        gbnf.check(text)
        _State.first(text, None)
        return cls(text)

    @classmethod
    def from_schema(cls, schema: str) -> Self:
        """Of the JSON text that is valid by `schema`; raises UsageError if a grammar cannot say that."""
        return cls.parse(schema_to_gbnf(schema))

    def begin(self, vocab: Vocab, prompt_length: int) -> "LlamaGrammar":
        """For one text: the grammar begins behind the prompt. Valid as long as the vocabulary is."""
        return LlamaGrammar(_State.first(self.text, vocab), vocab, prompt_length)


class LlamaGrammar:
    """A `Grammar` of one text, shared by target and draft.

    An answer is a function of the tokens. What makes it fast is a memory: the states along the last text asked about.
    A text that shares its beginning with that one costs a step of the grammar for each further token. So the draft's
    steps are there already when the target verifies them, and after a rejection the two go on from the state before.
    """

    def __init__(self, first: "_State", vocab: Vocab, prompt_length: int) -> None:
        self._prompt_length = prompt_length
        self._pieces = _Pieces.of(vocab)
        self._output: list[int] = []
        self._states: dict[int, _State | None] = {0: first}
        """After how many tokens of `_output`, ascending; None behind a token that was not allowed."""

    def allowed(self, tokens: Sequence[int], ahead: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `ids` may follow.

        An end of generation may, where the grammar can end. Other control tokens never: llama.cpp would take them for
        the text of their names, which is not what comes out.
        """
        state = self._state_after([*tokens[self._prompt_length :], *ahead])
        asked = (ids >= 0) & (ids < self._pieces.num_tokens)
        if state is None:
            asked[:] = False
        elif len(ids) >= _MANY and self._pieces.worth_sorting():
            asked[asked] = self._mask(state)[ids[asked]]
        else:
            asked[asked] = self._pieces.printed(ids[asked])
            asked[asked] = state.allowed(ids[asked])
        return asked

    def _mask(self, state: "_State") -> NDArray[np.bool_]:
        """Of all tokens. A text is allowed only if what it begins with is: where little is, little is looked at."""
        mask = np.zeros(self._pieces.num_tokens + 1, np.bool_)
        mask[-1] = True  # where nothing is before
        for ids, before in self._pieces.levels:
            asked = ids[mask[before]]
            mask[asked] = state.allowed(asked)
        return mask[:-1]

    def _state_after(self, output: list[int]) -> "_State | None":
        shared = common_prefix(self._output, output)
        if shared == len(output) and shared in self._states:
            return self._states[shared]  # what comes behind it is kept: the draft's steps, which the target follows
        while (length := next(reversed(self._states))) > shared:
            del self._states[length]
        state = self._states[length]
        self._output = output
        for token in output[length:]:
            state = state and state.after(token)
            length += 1
            self._states[length] = state
            if len(self._states) > _NUM_STATES + 1:
                del self._states[next(islice(self._states, 1, None))]  # the first state is kept
        return state


class _Pieces:
    """What the tokens of a vocabulary print, read as far as it is needed: reading all of them takes a while."""

    _read: ClassVar[WeakKeyDictionary[Vocab, Self]] = WeakKeyDictionary()

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = weakref.proxy(vocab)
        self.num_tokens = vocab.num_tokens
        self._num_masks = 0
        self._known = np.zeros(vocab.num_tokens, bool)
        self._printed = np.zeros(vocab.num_tokens, bool)

    @classmethod
    def of(cls, vocab: Vocab) -> Self:
        """The same for every text of a model."""
        return cls._read.setdefault(vocab, cls(vocab))

    def printed(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of them print something, or end the text."""
        self._learn(ids)
        return self._printed[ids]

    def worth_sorting(self) -> bool:
        """Whether it was asked often enough for `levels` to be worth their while."""
        self._num_masks += 1
        return self._num_masks > _OFTEN

    @functools.cached_property
    def levels(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The tokens that print something, and for each the longest one that it begins with, by the number of such.

        It has to end with a character: of half a one, llama.cpp's engine may refuse what it allows of the whole.
        """
        self._known[:] = False
        pieces = self._learn(np.arange(self.num_tokens))
        eog = self._vocab.eog
        levels: list[list[tuple[int, int]]] = [[(token, -1) for token in eog]]
        open_pieces: list[tuple[bytes, int, int]] = []
        for piece, token in sorted((piece, token) for token, piece in enumerate(pieces) if piece and token not in eog):
            while open_pieces and not piece.startswith(open_pieces[-1][0]):
                open_pieces.pop()
            before, depth = -1, 0
            for shorter, other, its_depth in reversed(open_pieces):
                if not 0x80 <= (piece[len(shorter) :] or b"0")[0] < 0xC0:
                    before, depth = other, its_depth + 1
                    break
            open_pieces.append((piece, token, depth))
            levels += [[] for _ in range(depth + 1 - len(levels))]
            levels[depth].append((token, before))
        return [(array[:, 0], array[:, 1]) for array in (np.array(level, np.int64) for level in levels)]

    def _learn(self, ids: NDArray[np.int64]) -> list[bytes]:
        """The pieces of those that were not known."""
        new = ids[~self._known[ids]].tolist()
        pieces = [self._vocab.piece(token) for token in new]
        self._printed[new] = [bool(piece) or token in self._vocab.eog for token, piece in zip(new, pieces, strict=True)]
        self._known[new] = True
        return pieces


class _State:
    """llama.cpp's sampler after some tokens. It aborts the process if given one that is not allowed."""

    def __init__(self, sampler: Any) -> None:  # noqa: ANN401 (a ctypes pointer)
        self._sampler = sampler
        weakref.finalize(self, lib.llama_sampler_free, sampler)

    @classmethod
    def first(cls, text: str, vocab: Vocab | None) -> Self:
        """Without a vocabulary only to see whether llama.cpp takes the grammar; UsageError if not."""
        take_errors()
        pointer = vocab._pointer if vocab else None
        sampler = lib.llama_sampler_init_grammar(pointer, text.encode(), gbnf.ROOT.encode())
        if not sampler:
            raise UsageError(
                f"llama.cpp refuses the grammar: {take_errors()}", "change it so that it needs no such rule"
            )
        return cls(sampler)

    def allowed(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `ids` may follow."""
        candidates = np.zeros(len(ids), _CANDIDATE)
        candidates["id"] = ids
        pointer = candidates.ctypes.data_as(lib.llama_token_data_p)
        lib.llama_sampler_apply(self._sampler, ctypes.byref(lib.llama_token_data_array(pointer, len(ids), -1, False)))
        allowed: NDArray[np.bool_] = candidates["logit"] == 0.0
        return allowed

    def after(self, token: int) -> "Self | None":
        """The state one token later, None if it may not follow."""
        if not self.allowed(np.array([token])).all():
            return None
        sampler = lib.llama_sampler_clone(self._sampler)
        lib.llama_sampler_accept(sampler, token)
        return type(self)(sampler)
