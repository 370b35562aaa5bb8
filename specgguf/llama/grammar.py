"""Grammars, with llama.cpp's own engine: which tokens may follow which text."""

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
"""How many earlier states are kept to go back to: more than a draft has tokens."""

_MANY = 8192
"""For this many ids at once, it is faster to look at tokens by their common beginnings."""
_OFTEN = 10
"""Finding the common beginnings takes a while, so that is done only after this many such requests."""

_CANDIDATE = np.dtype(lib.llama_token_data)


@dataclass(frozen=True, slots=True)
class GrammarText:
    """A grammar that llama.cpp can use. No model is needed to check that."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises UsageError if `text` is not GBNF that llama.cpp can use."""
        gbnf.check(text)
        _State.first(text, None)
        return cls(text)

    @classmethod
    def from_schema(cls, schema: str) -> Self:
        """The grammar of the JSON texts that fit `schema`. Raises UsageError if no grammar can express it."""
        return cls.parse(schema_to_gbnf(schema))

    def begin(self, vocab: Vocab, prompt_length: int) -> "LlamaGrammar":
        """Start one text: the grammar begins after the prompt. It can be used as long as the vocabulary."""
        return LlamaGrammar(_State.first(self.text, vocab), vocab, prompt_length)


class LlamaGrammar:
    """A `Grammar` for one text, shared by target and draft.

    What is allowed depends only on the tokens. For speed, the states along the last text are kept: another text with
    the same beginning costs one step of the grammar for each further token. So the draft's steps are already done when
    the target verifies them, and after a rejection both go on from the state before it.
    """

    def __init__(self, first: "_State", vocab: Vocab, prompt_length: int) -> None:
        self._prompt_length = prompt_length
        self._pieces = _Pieces.of(vocab)
        self._output: list[int] = []
        self._states: dict[int, _State | None] = {0: first}
        """States by the number of tokens of `_output` before them, ascending; None after a forbidden token."""

    def allowed(self, tokens: Sequence[int], ahead: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `ids` may follow.

        An end of generation may follow where the grammar can end. Other control tokens never may: llama.cpp would read
        them as the text of their names, which is not what they print.
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
        """All tokens: which may follow. A token is looked at only if the token that it begins with is allowed."""
        mask = np.zeros(self._pieces.num_tokens + 1, np.bool_)
        mask[-1] = True  # for tokens that begin with no other
        for ids, before in self._pieces.levels:
            asked = ids[mask[before]]
            mask[asked] = state.allowed(asked)
        return mask[:-1]

    def _state_after(self, output: list[int]) -> "_State | None":
        shared = common_prefix(self._output, output)
        if shared == len(output) and shared in self._states:
            return self._states[shared]  # later states, of the draft's steps, stay for the target
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
    """What the tokens of a vocabulary print. They are read when needed: all of them take a while."""

    _read: ClassVar[WeakKeyDictionary[Vocab, Self]] = WeakKeyDictionary()

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = weakref.proxy(vocab)
        self.num_tokens = vocab.num_tokens
        self._num_masks = 0
        self._known = np.zeros(vocab.num_tokens, bool)
        self._printed = np.zeros(vocab.num_tokens, bool)

    @classmethod
    def of(cls, vocab: Vocab) -> Self:
        """The pieces of a model's vocabulary, shared by all its texts."""
        return cls._read.setdefault(vocab, cls(vocab))

    def printed(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `ids` print something, or end the text."""
        self._learn(ids)
        return self._printed[ids]

    def worth_sorting(self) -> bool:
        """Whether there were enough requests for `levels` to save time."""
        self._num_masks += 1
        return self._num_masks > _OFTEN

    @functools.cached_property
    def levels(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Tokens that print something, each with the longest other token that it begins with (-1: none).

        Level n has the tokens with n such beginnings, one in another. A beginning must not end inside a character: of
        half a character, llama.cpp's engine may refuse what it allows of the whole.
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
        """Read the pieces of those of `ids` that are not known yet, and return them."""
        new = ids[~self._known[ids]].tolist()
        pieces = [self._vocab.piece(token) for token in new]
        self._printed[new] = [bool(piece) or token in self._vocab.eog for token, piece in zip(new, pieces, strict=True)]
        self._known[new] = True
        return pieces


class _State:
    """llama.cpp's grammar sampler after some tokens. It would abort the process for a token that is not allowed."""

    def __init__(self, sampler: Any) -> None:  # noqa: ANN401 (a ctypes pointer)
        self._sampler = sampler
        weakref.finalize(self, lib.llama_sampler_free, sampler)

    @classmethod
    def first(cls, text: str, vocab: Vocab | None) -> Self:
        """The state before a text; without a vocabulary, only a check. Raises UsageError if llama.cpp refuses it."""
        take_errors()
        pointer = vocab._pointer if vocab else None
        sampler = lib.llama_sampler_init_grammar(pointer, text.encode(), gbnf.ROOT.encode())
        if not sampler:
            raise UsageError(f"llama.cpp refuses the grammar: {take_errors()}", "change or remove that rule")
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
        """The state one token later; None if the token may not follow."""
        if not self.allowed(np.array([token])).all():
            return None
        sampler = lib.llama_sampler_clone(self._sampler)
        lib.llama_sampler_accept(sampler, token)
        return type(self)(sampler)
