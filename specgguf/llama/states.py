"""Copies of the state of sequences, to go back to."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from llama_cpp import llama_cpp as lib

from specgguf.errors import ContextError

_PARTIAL_ONLY = 1
"""Only what cannot be cut: recurrent states, not the cells of attention."""
_MOST = 4
"""States kept of a sequence: the ends of the last prompts, and the one before the draft at hand."""


class _State(NamedTuple):
    length: int
    before_draft: bool
    data: ctypes.Array[ctypes.c_uint8]


class States:
    """The recurrent states of a context's sequences, by the number of tokens that they stand for."""

    def __init__(self, context: Any) -> None:  # noqa: ANN401 (a ctypes pointer)
        self._context = context
        self._states: dict[int, Sequence[_State]] = {}

    def size(self, sequence: int) -> int:
        """Bytes of a state; 0 where llama.cpp cannot copy it."""
        return int(lib.llama_state_seq_get_size_ext(self._context, sequence, _PARTIAL_ONLY))

    def save(self, sequence: int, length: int, before_draft: bool) -> None:
        """Copy the state, which stands for `length` tokens; one before a draft takes the place of the last such."""
        size = self.size(sequence)
        data = (ctypes.c_uint8 * size)()
        if lib.llama_state_seq_get_data_ext(self._context, data, size, sequence, _PARTIAL_ONLY) != size:
            raise ContextError("llama.cpp could not copy the state of a sequence", "run it with --speculate off")
        kept = [
            state
            for state in self._states.get(sequence, ())
            if state.length < length and not (before_draft and state.before_draft)
        ]
        self._states[sequence] = [*kept, _State(length, before_draft, data)][-_MOST:]

    def forget(self, sequence: int, length: int) -> None:
        """The text is cut to its first `length` tokens: the states of more are of a text that is no more."""
        self._states[sequence] = [state for state in self._states.get(sequence, ()) if state.length <= length]

    def restore(self, sequence: int) -> int:
        """Put back the latest state; how many tokens it stands for, 0 if there is none."""
        kept = self._states.get(sequence)
        if not kept:
            return 0
        length, _, data = kept[-1]
        size = len(data)
        if lib.llama_state_seq_set_data_ext(self._context, data, size, sequence, _PARTIAL_ONLY) != size:
            raise ContextError("llama.cpp could not restore the state of a sequence", "run it with --speculate off")
        return length
