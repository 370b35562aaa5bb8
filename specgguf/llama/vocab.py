"""Turns text into token ids and back, with llama.cpp's tokenizer."""

import ctypes
import functools
import re
from collections.abc import Mapping

from llama_cpp import llama_cpp as lib

from specgguf.errors import ModelError
from specgguf.llama.deep import with_stack
from specgguf.text.thought import FORMATS

_NO_TOKEN = -1
_RUN = re.compile(r"\s+|\S+")
_SHORT = 4096
_STACK = 2048
"""Bytes of stack for a character of a run: for some pre-tokenizers llama.cpp matches regular expressions that recurse
for each of them. 170 to 340 bytes were measured (GCC's library)."""


class Vocab:
    """The vocabulary of a model. It can be used until the model is closed."""

    def __init__(self, pointer: lib.llama_vocab_p) -> None:
        self._pointer = pointer
        self.num_tokens = int(lib.llama_vocab_n_tokens(pointer))
        self.bos = _token_or_none(lib.llama_vocab_bos(pointer))
        self.eos = _token_or_none(lib.llama_vocab_eos(pointer))
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(pointer))
        self._buffer = ctypes.create_string_buffer(256)

    @functools.cached_property
    def eog(self) -> frozenset[int]:
        """Ids that end a text (end of generation)."""
        ends = lib.llama_vocab_is_eog
        return frozenset(token for token in range(self.num_tokens) if ends(self._pointer, token))

    def tokenize(self, text: str) -> list[int]:
        """The ids of a whole text. Special tokens that are spelt out in it become their ids.

        If the model wants a BOS, the result has exactly one: a rendered chat template may begin with it already. Raises
        ModelError if llama.cpp fails.
        """
        ids = self._ids(text)
        return [self.bos, *ids] if self.adds_bos and self.bos is not None and ids[:1] != [self.bos] else ids

    def silent_in(self, text: str) -> list[int]:
        """The ids of the control tokens whose names are spelt out in a text, and of which no text shows anything."""
        return [token for token in self._ids(text) if not self.shown(token)]

    def _ids(self, text: str) -> list[int]:
        longest = max((found.end() - found.start() for found in _RUN.finditer(text)), default=0)
        if longest <= _SHORT:
            return self._ids_here(text)
        try:
            return with_stack(longest * _STACK, lambda: self._ids_here(text))
        except MemoryError:
            raise ModelError(
                f"a word of {longest} characters: there is too little memory to tokenize it", "break it up with spaces"
            ) from None

    def _ids_here(self, text: str) -> list[int]:
        data = text.encode()
        tokens = (lib.llama_token * (len(data) + 8))()
        count = lib.llama_tokenize(self._pointer, data, len(data), tokens, len(tokens), False, True)
        if count < 0:  # more tokens than bytes: one space may become three
            tokens = (lib.llama_token * -count)()
            count = lib.llama_tokenize(self._pointer, data, len(data), tokens, len(tokens), False, True)
        if count < 0:
            raise ModelError("llama.cpp could not tokenize the text", "try a shorter text")
        return tokens[:count]

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to a text; none for a control token."""
        size = len(self._buffer)
        length = lib.llama_token_to_piece(self._pointer, token, self._buffer, size, 0, False)
        if length < 0:
            self._buffer = ctypes.create_string_buffer(-length)
            return self.piece(token)
        return self._buffer.raw[:length]

    def shown(self, token: int) -> bytes:
        """The same, and the names of control tokens around thoughts, without which none is told from an answer."""
        return self._thought_marks.get(token) or self.piece(token)

    @functools.cached_property
    def _thought_marks(self) -> Mapping[int, bytes]:
        ids = {name: self._ids(name) for marks in FORMATS for name in marks.tokens}
        known = {name: ids[name][0] for name in ids if len(ids[name]) == 1 and self.text(ids[name][0]) == name}
        used = (name for marks in FORMATS if known.keys() >= set(marks.tokens) for name in marks.tokens)
        return {known[name]: name.encode() for name in used if known[name] not in self.eog}

    def text(self, token: int | None) -> str:
        """The token's name in the vocabulary; empty for None."""
        if token is None:
            return ""
        return str(lib.llama_vocab_get_text(self._pointer, token).decode("utf-8", "replace"))


def _token_or_none(token: int) -> int | None:
    return None if token == _NO_TOKEN else token
