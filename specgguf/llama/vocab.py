"""Text to token ids and back, by llama.cpp's tokenizer."""

import ctypes
import functools

from llama_cpp import llama_cpp as lib

from specgguf.errors import ModelError

_NO_TOKEN = -1


class Vocab:
    """The vocabulary of a model; valid as long as the model is open."""

    def __init__(self, pointer: lib.llama_vocab_p) -> None:
        self._pointer = pointer
        self.num_tokens = int(lib.llama_vocab_n_tokens(pointer))
        self.bos = _token_or_none(lib.llama_vocab_bos(pointer))
        self.eos = _token_or_none(lib.llama_vocab_eos(pointer))
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(pointer))
        self._buffer = ctypes.create_string_buffer(256)

    @functools.cached_property
    def eog(self) -> frozenset[int]:
        """Ids that end a text."""
        ends = lib.llama_vocab_is_eog
        return frozenset(token for token in range(self.num_tokens) if ends(self._pointer, token))

    def tokenize(self, text: str) -> list[int]:
        """Ids of a whole text, special tokens spelled out in it included, with exactly one BOS or none.

        A BOS is put first if the model wants one, unless the text (a rendered chat template) begins with it.
        """
        data = text.encode()
        tokens = (lib.llama_token * (len(data) + 8))()
        count = lib.llama_tokenize(self._pointer, data, len(data), tokens, len(tokens), False, True)
        if count < 0:  # more tokens than bytes: a space may become three
            tokens = (lib.llama_token * -count)()
            count = lib.llama_tokenize(self._pointer, data, len(data), tokens, len(tokens), False, True)
        if count < 0:
            raise ModelError("llama.cpp could not tokenize the text", "try a shorter text")
        ids = tokens[:count]
        return [self.bos, *ids] if self.adds_bos and self.bos is not None and ids[:1] != [self.bos] else ids

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for in a text; none for control tokens."""
        size = len(self._buffer)
        length = lib.llama_token_to_piece(self._pointer, token, self._buffer, size, 0, False)
        if length < 0:
            self._buffer = ctypes.create_string_buffer(-length)
            return self.piece(token)
        return self._buffer.raw[:length]

    def text(self, token: int | None) -> str:
        """How the vocabulary spells a token; empty for None."""
        if token is None:
            return ""
        return str(lib.llama_vocab_get_text(self._pointer, token).decode("utf-8", "replace"))


def _token_or_none(token: int) -> int | None:
    return None if token == _NO_TOKEN else token
