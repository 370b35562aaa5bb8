"""A KV cache of llama.cpp."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from specgguf.errors import ContextError, UsageError
from specgguf.llama.interrupt import interruptible
from specgguf.llama.library import take_errors
from specgguf.llama.model import Model
from specgguf.llama.states import States
from specgguf.llama.taps import hidden_rows, switch_on
from specgguf.speculative.context import NEXTN, Context, Hidden, Logits, Part, Rollback

_NO_SLOT, _ABORTED = 1, 2

CACHE_TYPES = {
    "f32": lib.GGML_TYPE_F32,
    "f16": lib.GGML_TYPE_F16,
    "bf16": 30,  # ggml.h's GGML_TYPE_BF16, which llama_cpp leaves out
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q5_1": lib.GGML_TYPE_Q5_1,
    "q5_0": lib.GGML_TYPE_Q5_0,
    "q4_1": lib.GGML_TYPE_Q4_1,
    "q4_0": lib.GGML_TYPE_Q4_0,
    "iq4_nl": lib.GGML_TYPE_IQ4_NL,
}
"""ggml types of the cells of a KV cache, by the names of the command line."""


def check_cache_type(option: str, name: str) -> None:
    """Raises UsageError for a name that is not in CACHE_TYPES."""
    if name not in CACHE_TYPES:
        raise UsageError(f"{option}: unknown type {name!r}", f"there is {', '.join(CACHE_TYPES)}")


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """What a context is opened with, and, read back from it, what is in effect."""

    n_ctx: int
    """Tokens of a sequence."""
    n_threads: int
    cache_type_k: str
    cache_type_v: str
    max_rows: int
    """Logit rows of one batch at most: draft tokens + 1 of each sequence."""
    n_batch: int
    """Tokens of one batch at most: the chunk of a prefill, and the bound of a draft."""
    n_seq: int = 1
    """Sequences that share the cache."""
    n_cells: int | None = None
    """Tokens of all of them; None: `n_ctx` for each."""
    apart: bool = False
    """Whether each sequence has cells of its own, instead of any that are free: as `Context.apart`."""
    replay_width: int | None = None
    """Tokens of a batch at most where tokens are evaluated again; None: `n_batch`."""
    taps: tuple[int, ...] = ()
    """Layers whose inputs are wanted of every token; `NEXTN` for what MTP layers go on from."""


class LlamaContext(Context):
    """A KV cache of one model. Close it before the model."""

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        """Raises ContextError if llama.cpp cannot open it, which mostly means too little memory."""
        params = lib.llama_context_default_params()
        room = settings.n_seq * settings.max_rows if settings.apart else settings.max_rows
        params.n_ctx = (settings.n_cells or settings.n_seq * settings.n_ctx) + room
        params.n_seq_max = settings.n_seq
        params.kv_unified = settings.n_seq > 1 and not settings.apart
        params.n_batch = params.n_ubatch = settings.n_batch
        params.n_outputs_max = settings.max_rows
        # llama.cpp sets it to 0 where the architecture cannot do it, and aborts where a batch is no longer than it.
        # A state takes memory, and many sequences have many: these have none.
        has_states = settings.n_seq == 1 and settings.max_rows < settings.n_batch
        params.n_rs_seq = settings.max_rows - 1 if has_states else 0
        params.n_threads = params.n_threads_batch = settings.n_threads
        params.type_k = CACHE_TYPES[settings.cache_type_k]
        params.type_v = CACHE_TYPES[settings.cache_type_v]
        self._pointer = model.open_context(
            params,
            f"a context of {settings.n_ctx} tokens with {settings.cache_type_k}/{settings.cache_type_v} cells",
            "try a smaller --ctx, or other --cache-type-k and --cache-type-v",
        )
        super().__init__(
            n_ctx=min(settings.n_ctx, int(lib.llama_n_ctx(self._pointer))),  # llama.cpp rounds up
            n_batch=min(settings.n_ctx, int(lib.llama_n_batch(self._pointer))),
            max_rows=settings.max_rows,
            n_seq=settings.n_seq,
        )
        self.settings = replace(
            settings, n_ctx=self.n_ctx, n_threads=int(lib.llama_n_threads(self._pointer)), n_batch=self.n_batch
        )
        self.role = model.header.role
        self._n_vocab = model.vocab.num_tokens
        self._memory = lib.llama_get_memory(self._pointer)
        self._window = int(lib.llama_model_n_swa(model.pointer))
        self._states = States(self._pointer)
        self._held: dict[int, range | None] = {}
        """By sequence, the positions that its last batch has filled; None where that did not come to its end."""
        self.rollback = self._kind_of_rollback(model)
        self.can_share = self.rollback is Rollback.PARTIAL and not self._window and not settings.apart
        self.apart = settings.apart
        self._n_embd = int(lib.llama_model_n_embd(model.pointer))
        self._n_embd_out = int(lib.llama_model_n_embd_out(model.pointer))
        for tap in settings.taps:
            switch_on(self._pointer, tap)
        self._open_batch()

    def _kind_of_rollback(self, model: Model) -> Rollback:
        if not model.has_recurrent_state:
            return Rollback.PARTIAL
        self._num_snapshots = int(lib.llama_n_rs_seq(self._pointer))
        if self.max_rows > 1 and self._num_snapshots >= self.max_rows - 1:
            return Rollback.SNAPSHOTS
        return Rollback.CHECKPOINT if self._states.size(0) else Rollback.NONE

    def _open_batch(self) -> None:
        """One batch for the context's life."""
        self._batch = lib.llama_batch_init(self.n_batch, 0, 1)
        self._columns = self._batch.token, self._batch.pos, self._batch.logits
        for i in range(self.n_batch):
            self._batch.n_seq_id[i] = 1
            self._batch.seq_id[i][0] = 0
        self._filled_with = [0] * self.n_batch  # the sequence of each place

    def _evaluate(self, parts: Sequence[Part]) -> tuple[Logits, Mapping[int, Hidden]]:
        if self._pointer is None:
            raise ValueError("the context is closed")
        code = _ABORTED
        while code == _ABORTED:
            # Aborted, but no exception of the signal's handler followed: the signal came before this batch
            # and was dealt with then, so the batch is simply done again.
            self.settle()
            begin = time.perf_counter()
            code = self._decode([(len(self.tokens[part.sequence]), part) for part in parts])
        self._check(code)
        rows = sum(part.rows for part in parts)
        logits = np.empty((0, self._n_vocab), np.float32)
        if rows:
            pointer = lib.llama_get_logits(self._pointer)
            if not pointer:
                raise ContextError(f"{self.role} model: llama.cpp gave no logits", "this is a bug: report it")
            logits = np.ctypeslib.as_array(pointer, (rows, self._n_vocab))
        num_tokens = int(self._batch.n_tokens)
        hidden = {tap: hidden_rows(self._pointer, tap, num_tokens, self._tap_width(tap)) for tap in self.settings.taps}
        self.decode_s += time.perf_counter() - begin
        return logits, hidden

    def _tap_width(self, tap: int) -> int:
        return self._n_embd_out if tap == NEXTN else self._n_embd

    def _decode(self, parts: Sequence[tuple[int, Part]]) -> int:
        """Decode parts, each from a position on; llama.cpp's code. What fails leaves a cache that nobody knows."""
        self._fill_batch(parts)
        self._held.update({part.sequence: None for _, part in parts})
        with interruptible():
            code: int = lib.llama_decode(self._pointer, self._batch)
        if code == 0:
            for start, (sequence, tokens, _) in parts:
                self._held[sequence] = range(start, start + len(tokens))
        return code

    def _fill_batch(self, parts: Sequence[tuple[int, Part]]) -> None:
        place, (token_of, position_of, is_wanted) = 0, self._columns
        for start, (sequence, tokens, rows) in parts:
            shift, first_row = start - place, place + len(tokens) - rows
            for token in tokens:
                token_of[place], position_of[place], is_wanted[place] = token, place + shift, place >= first_row
                if self._filled_with[place] != sequence:
                    self._batch.seq_id[place][0] = self._filled_with[place] = sequence
                place += 1
        self._batch.n_tokens = place

    def _check(self, code: int) -> None:
        if code == _NO_SLOT:
            raise ContextError(
                f"{self.role} model: no room for {self._batch.n_tokens} tokens in a context of {self.n_ctx}",
                "give a larger --ctx",
            )
        if code != 0:
            raise ContextError(
                f"{self.role} model: llama.cpp could not decode (code {code}): {take_errors()}",
                "with -v llama.cpp says more",
            )

    def settle(self) -> None:
        """Make the cache hold the tokens and no more: before a batch, and before a head reads these cells."""
        for sequence, tokens in enumerate(self.tokens):
            self._go_back(sequence, len(tokens))

    def mark(self, sequence: int, before_draft: bool = False) -> None:
        """As `Context.mark`."""
        if self.rollback is Rollback.CHECKPOINT or (self.rollback is Rollback.SNAPSHOTS and not before_draft):
            begin = time.perf_counter()
            length = len(self.tokens[sequence])
            self._go_back(sequence, length)
            self._states.save(sequence, length, before_draft)
            self.decode_s += time.perf_counter() - begin

    def _share(self, source: int, sequence: int, length: int) -> None:
        self._go_back(source, len(self.tokens[source]))
        self._go_back(sequence, 0)
        lib.llama_memory_seq_cp(self._memory, source, sequence, 0, length)
        self._held[sequence] = range(length, length)

    def _go_back(self, sequence: int, length: int) -> None:
        """Make the cache hold the first `length` tokens of a sequence and no more.

        With a state that is not of attention alone llama.cpp may report a cut as done that has left a wrong state
        behind: so none is asked for but those that are right.
        """
        held = self._held.get(sequence, range(0))
        if held is not None and held.stop == length:
            return
        self._states.forget(sequence, length)
        if not self._is_cut_right(sequence, length, held):
            self._start_again(sequence, length)
        elif not lib.llama_memory_seq_rm(self._memory, sequence, length, -1):
            raise ContextError(
                f"{self.role} model: its cache cannot be cut back to {length} tokens", "run it with --speculate off"
            )
        self._held[sequence] = range(length, length)

    def _is_cut_right(self, sequence: int, length: int, held: range | None) -> bool:
        if self.rollback is Rollback.PARTIAL:
            needed = max(0, length - self._window) if self._window else length
            return int(lib.llama_memory_seq_pos_min(self._memory, sequence)) <= needed
        return (
            self.rollback is Rollback.SNAPSHOTS
            and held is not None
            and held.start < length
            and held.stop - length <= self._num_snapshots
        )

    def _start_again(self, sequence: int, length: int) -> None:
        """From the latest state that was saved, or from nothing."""
        begin = time.perf_counter()
        tokens, width = self.tokens[sequence], self.settings.replay_width or self.n_batch
        start = self._states.restore(sequence)
        if not lib.llama_memory_seq_rm(self._memory, sequence, start, -1):
            raise ContextError(f"{self.role} model: llama.cpp cannot clear its cache", "this is a bug: report it")
        while start < length:
            part = Part(sequence, tokens[start : min(start + width, length)])
            self._check(self._decode([(start, part)]))
            start += len(part.tokens)
        self.rollback_s += time.perf_counter() - begin

    @property
    def pointer(self) -> Any:  # noqa: ANN401 (a ctypes pointer)
        """For heads that share cells or tables with it."""
        if self._pointer is None:
            raise ValueError("the context is closed")
        return self._pointer

    def close(self) -> None:
        """Free the cache; closing again does nothing."""
        if self._pointer is not None:
            lib.llama_batch_free(self._batch)
            lib.llama_free(self._pointer)
            self._pointer = None
