"""The context of a draft head."""

import ctypes
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from llama_cpp import llama_cpp as lib

from specgguf.errors import ContextError
from specgguf.llama.context import LlamaContext
from specgguf.llama.interrupt import interruptible
from specgguf.llama.library import take_errors
from specgguf.llama.model import Model
from specgguf.llama.taps import function
from specgguf.speculative.context import Hidden, Logits

_ABORTED = 2
_MTP_CONTEXT = 1
"""llama.cpp's LLAMA_CONTEXT_TYPE_MTP."""


class HeadSettings(NamedTuple):
    """How a head's context is opened."""

    n_batch: int
    n_threads: int
    max_rows: int
    """Tokens of a batch that logits are wanted of, at most."""
    is_mtp: bool = False
    """Whether it is the MTP layers of its model that compute."""
    is_causal: bool = True
    shares_cells: bool = False
    """Whether it reads the target's cells instead of having its own."""
    gives_rows: bool = True
    """Whether its own hidden states are wanted."""


class LlamaHead:
    """A head on top of a target's context. Close it before that."""

    def __init__(self, model: Model, target: LlamaContext, settings: HeadSettings) -> None:
        """`model`: the head's own file, or the target's with its layers. Raises ContextError as contexts do."""
        params = lib.llama_context_default_params()
        params.n_ctx = target.n_ctx + target.max_rows
        params.n_batch = params.n_ubatch = settings.n_batch
        params.n_seq_max = 1
        params.n_outputs_max = settings.max_rows
        params.n_threads = params.n_threads_batch = settings.n_threads
        params.ctx_other = target.pointer
        if settings.is_mtp:
            params.ctx_type = _MTP_CONTEXT
        self._pointer = model.open_context(
            params, "a context for this head", "is it made for this target? --draft none does without"
        )
        self._target = target if settings.shares_cells else None
        self.role = model.header.role
        self.decode_s = 0.0
        self.n_ctx, self.n_batch = target.n_ctx, settings.n_batch
        self.width = int(lib.llama_model_n_embd_out(model.pointer))
        self._n_vocab = model.vocab.num_tokens
        self._memory = lib.llama_get_memory(self._pointer)
        self._sequences = np.ones(settings.n_batch, np.int32), self._sequence_ids(settings.n_batch)
        if settings.gives_rows:
            function("llama_set_embeddings_nextn")(self._pointer, True, True)
        if not settings.is_causal:
            lib.llama_set_causal_attn(self._pointer, False)

    def _sequence_ids(self, count: int) -> Any:  # noqa: ANN401 (a ctypes array)
        self._zero = np.zeros(1, np.int32)
        pointer = ctypes.POINTER(ctypes.c_int32)
        return (pointer * count)(*[self._zero.ctypes.data_as(pointer)] * count)

    def decode(
        self, tokens: Sequence[int] | None, rows: Hidden | None, start: int, with_logits: bool = False
    ) -> Logits | None:
        """As `Head.decode`."""
        count = self._run(lib.llama_decode, tokens, rows, start, with_logits)
        if not with_logits:
            return None
        return np.ctypeslib.as_array(lib.llama_get_logits(self._pointer), (count, self._n_vocab))

    def encode(self, rows: Hidden) -> Hidden:
        """As `Head.encode`."""
        return self.rows(self._run(lib.llama_encode, None, rows, None, True))

    def rows(self, count: int) -> Hidden:
        """As `Head.rows`."""
        pointer = function("llama_get_embeddings_nextn")(self._pointer)
        return np.ctypeslib.as_array(pointer, (count, self.width)).copy()

    def cut(self, length: int) -> None:
        """As `Head.cut`; raises ContextError if llama.cpp refuses."""
        if not lib.llama_memory_seq_rm(self._memory, 0, length, -1):
            raise ContextError(f"{self.role} model: its cells cannot be cut back to {length}", "use --draft none")

    def use_layer(self, number: int) -> None:
        """As `Head.use_layer`."""
        function("llama_set_nextn_layer_offset")(self._pointer, number)

    def _run(
        self,
        evaluate: Any,  # noqa: ANN401 (a ctypes function)
        tokens: Sequence[int] | None,
        rows: Hidden | None,
        start: int | None,
        with_outputs: bool,
    ) -> int:
        """Evaluate tokens, rows or both at the positions from `start` on, if they have some; how many they were."""
        count = len(tokens) if tokens is not None else 0 if rows is None else len(rows)
        if self._target:
            self._target.settle()
        batch, arrays = lib.llama_batch(), []  # which have to live as long as the call
        batch.n_tokens = count

        def pointer(array: Any, kind: Any) -> Any:  # noqa: ANN401 (numpy to ctypes)
            arrays.append(array)
            return array.ctypes.data_as(ctypes.POINTER(kind))

        if tokens is not None:
            batch.token = pointer(np.array(tokens, np.int32), ctypes.c_int32)
        if rows is not None:
            batch.embd = pointer(np.ascontiguousarray(rows, np.float32), ctypes.c_float)
        if start is not None:
            batch.pos = pointer(np.arange(start, start + count, dtype=np.int32), ctypes.c_int32)
        batch.n_seq_id = pointer(self._sequences[0], ctypes.c_int32)
        batch.seq_id = ctypes.cast(self._sequences[1], type(batch.seq_id))  # type: ignore[type-var]
        batch.logits = pointer(np.full(count, with_outputs, np.int8), ctypes.c_int8)
        begin, code = time.perf_counter(), _ABORTED
        while code == _ABORTED:
            with interruptible():
                code = evaluate(self._pointer, batch)
        self.decode_s += time.perf_counter() - begin
        if code != 0:
            raise ContextError(
                f"{self.role} model: llama.cpp could not decode with this head (code {code}): {take_errors()}",
                "use --draft none",
            )
        return count

    def close(self) -> None:
        """Free the context; closing again does nothing."""
        if self._pointer is not None:
            lib.llama_free(self._pointer)
            self._pointer = None
