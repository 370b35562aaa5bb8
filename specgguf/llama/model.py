"""A model's weights in memory."""

import mmap
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from llama_cpp import llama_cpp as lib

from specgguf.core import gguf
from specgguf.core.parity import Tokenizer, read_tokenizer
from specgguf.errors import ModelError
from specgguf.llama.interrupt import interruptible
from specgguf.llama.library import take_errors
from specgguf.llama.vocab import Vocab

ALL_LAYERS = -1


class Header:
    """What a GGUF file says of itself; reading it takes milliseconds and no weights.

    `role` is how errors name the file: target or draft. Raises ModelError if the file is none, or cut short.
    """

    def __init__(self, path: Path, role: str) -> None:
        self.path = path
        self.role = role
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                if size == 0:
                    raise gguf.MalformedError("it is empty")
                buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._header = gguf.parse(buffer)
                if self._header.data_end >= size:
                    raise gguf.TruncatedError(f"it ends at byte {size}, its last tensor begins behind that")
            self.tokenizer: Tokenizer = read_tokenizer(self._header)
        except FileNotFoundError:
            raise ModelError(
                f"{role} model: no such file: {path}",
                "check the path; names of known models are in models.toml",
            ) from None
        except OSError as error:
            raise ModelError(
                f"{role} model: cannot read {path}: {error.strerror}", "check the path and its permissions"
            ) from None
        except gguf.TruncatedError as error:
            raise ModelError(f"{role} model: {path} is truncated: {error}", "download or copy it again") from None
        except gguf.MalformedError as error:
            raise ModelError(
                f"{role} model: {path} is not a usable GGUF file: {error}",
                "give a .gguf file of a language model",
            ) from None
        self.chat_template = self._header.text("tokenizer.chat_template")
        self.name = self._header.text("general.name") or path.name


class Model:
    """Loaded weights. Close the contexts first, then the model."""

    def __init__(self, header: Header, n_gpu_layers: int) -> None:
        """Load the file of `header`; raises ModelError if llama.cpp cannot use it for generating text."""
        params = lib.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        take_errors()
        with interruptible():
            self._pointer = lib.llama_model_load_from_file(str(header.path).encode(), params)
        if not self._pointer:
            raise ModelError(
                f"{header.role} model: llama.cpp cannot load {header.path}: {take_errors()}",
                "download it again, or update llama-cpp-python if the model is newer than it",
            )
        self.header = header
        self.vocab = Vocab(lib.llama_model_get_vocab(self._pointer))
        self.n_ctx_train = int(lib.llama_model_n_ctx_train(self._pointer))
        self.can_roll_back = not (
            lib.llama_model_is_recurrent(self._pointer) or lib.llama_model_is_hybrid(self._pointer)
        )
        """Whether rejected draft tokens can be removed from its cache (attention only, as yet)."""
        if lib.llama_model_has_encoder(self._pointer) or not lib.llama_model_has_decoder(self._pointer):
            self.close()
            raise ModelError(
                f"{header.role} model: {header.path} does not generate text token by token",
                "give a decoder-only language model, no embedding or encoder model",
            )

    @property
    def pointer(self) -> Any:  # noqa: ANN401 (a ctypes pointer)
        """For `Context` only."""
        if self._pointer is None:
            raise ValueError("the model is closed")
        return self._pointer

    def close(self) -> None:
        """Free the weights; closing again does nothing."""
        if self._pointer is not None:
            lib.llama_model_free(self._pointer)
            self._pointer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
