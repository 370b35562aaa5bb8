"""A model's weights in memory."""

import ctypes
import os
from typing import Any

from llama_cpp import llama_cpp as lib

from specgguf.errors import ContextError, ModelError
from specgguf.llama.interrupt import abort_data, abort_function, interruptible
from specgguf.llama.library import take_errors
from specgguf.llama.vocab import Vocab
from specgguf.models.header import ModelHeader

ALL_LAYERS = -1


class Model:
    """Loaded weights. Close the contexts first, then the model."""

    def __init__(
        self,
        header: ModelHeader,
        n_gpu_layers: int,
        repack: bool = True,
        with_mtp: bool = False,
        is_head: bool = False,
        with_weights: bool = True,
    ) -> None:
        """Load the file of `header`; raises ModelError if llama.cpp cannot use it for generating text.

        `repack` lets llama.cpp rearrange quantized weights for this processor: faster, but rounded otherwise.
        `with_mtp`: its MTP layers too. `is_head`: it need not generate text by itself, but draft for a target. Without
        weights its contexts can be opened, in no time and memory, to be asked what they are like; they compute nothing.
        """
        params = lib.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.use_extra_bufts = repack
        params.load_mtp = with_mtp
        if not with_weights:
            params.no_alloc, params.load_mode = True, lib.LLAMA_LOAD_MODE_NONE
        take_errors()
        with interruptible():
            self._pointer = lib.llama_model_load_from_file(os.fsencode(header.path), params)
        if not self._pointer:
            raise ModelError(
                f"{header.role} model: llama.cpp cannot load {header.path}: {take_errors()}",
                "download it again, or update llama-cpp-python if the model is newer than it",
            )
        self.header = header
        self.vocab = Vocab(lib.llama_model_get_vocab(self._pointer))
        self.n_ctx_train = int(lib.llama_model_n_ctx_train(self._pointer))
        self.has_recurrent_state = bool(
            lib.llama_model_is_recurrent(self._pointer) or lib.llama_model_is_hybrid(self._pointer)
        )
        """Whether its cache is more than the cells of attention."""
        if self.n_ctx_train <= 0:
            self.close()
            raise ModelError(
                f"{header.role} model: {header.path} claims a context of {self.n_ctx_train} tokens", "download it again"
            )
        generates = lib.llama_model_has_decoder(self._pointer) and not lib.llama_model_has_encoder(self._pointer)
        if not generates and not is_head:
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

    def open_context(self, params: Any, what: str, hint: str) -> Any:  # noqa: ANN401 (ctypes, in and out)
        """A context that a signal can abort; raises ContextError with `what` cannot be opened, and why."""
        params.abort_callback = ctypes.cast(abort_function, lib.ggml_abort_callback)
        params.abort_callback_data = abort_data
        take_errors()
        with interruptible():
            pointer: Any = lib.llama_init_from_model(self.pointer, params)
        if not pointer:
            raise ContextError(f"{self.header.role} model: llama.cpp cannot open {what}: {take_errors()}", hint)
        return pointer

    def close(self) -> None:
        """Free the weights; closing again does nothing."""
        if self._pointer is not None:
            lib.llama_model_free(self._pointer)
            self._pointer = None
