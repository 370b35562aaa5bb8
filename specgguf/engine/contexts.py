"""The contexts of a target and of all that draft for it, opened and closed together."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

from specgguf.drafters.model import ModelDrafter
from specgguf.engine.heads import open_head, taps_of
from specgguf.engine.settings import N_BATCH, EngineSettings
from specgguf.errors import ContextError
from specgguf.exact.choice import Arithmetic, ExactChoice
from specgguf.headers.heads import DraftKind
from specgguf.llama.context import ContextSettings, LlamaContext
from specgguf.llama.head import LlamaHead
from specgguf.llama.model import Model
from specgguf.speculative.context import NEXTN, Rollback
from specgguf.speculative.drafter import Drafter

_CANNOT_GO_BACK = "llama.cpp cannot copy the state of such a model, so nothing can be taken back"


class Contexts:
    """Nothing is open at first."""

    def __init__(
        self,
        target: Model,
        has_own_heads: bool,
        settings: EngineSettings,
        num_threads: int,
        arithmetic: Arithmetic,
        exact: ExactChoice | None,
        max_rows: int,
    ) -> None:
        """`arithmetic`: the usual one; that of exact mode, if it is wanted, comes with `exact`. `max_rows`: of the
        target's batches."""
        self._model = target
        self._has_own_heads = has_own_heads
        self._settings = settings
        self._num_threads = num_threads
        self._arithmetic = arithmetic
        self._exact = exact
        self._max_rows = max_rows
        self._resources = ExitStack()
        self.all: list[LlamaContext] = []
        """The target's, then a draft model's; none while nothing is open."""
        self.drafters: list[Drafter] = []
        """All but those that need no context."""
        self._heads: list[LlamaHead] = []

    @property
    def target(self) -> LlamaContext | None:
        """The target's context, if it is open."""
        return self.all[0] if self.all else None

    @property
    def seconds(self) -> float:
        """Seconds that all have spent inside llama.cpp so far."""
        contexts = sum(context.decode_s + context.rollback_s for context in self.all)
        return contexts + sum(head.decode_s for head in self._heads)

    def open(
        self, n_ctx: int, draft: Model | None, num_shared: int, drop_draft: Callable[[str], object], n_seq: int = 1
    ) -> LlamaContext:
        """Open everything, instead of what is open.

        `draft`: a draft model or head; `num_shared`: ids that it shares with the target; `drop_draft` is told why it
        cannot draft. `n_seq`: sequences that share the `n_ctx` cells; then heads do not draft. In exact mode each of
        them has so many, and nobody drafts. Raises ContextError where there is no memory for the target's context.
        """
        self.close()
        is_apart, is_alone = bool(self._exact) and n_seq > 1, n_seq == 1
        taps = taps_of(draft.header.kind, draft.header.gguf) if draft and is_alone else ()
        taps += (NEXTN,) if self._has_own_heads and NEXTN not in taps and is_alone else ()
        arithmetic = self._exact.arithmetic if self._exact else self._arithmetic
        cells = {"n_seq": n_seq, "n_cells": None if is_apart else n_ctx, "apart": is_apart}
        context = self._open_context(self._model, n_ctx, self._max_rows, arithmetic, taps, **cells)
        if context.rollback is Rollback.NONE:
            drop_draft(f"the target: {_CANNOT_GO_BACK}")
            return context
        if draft and not is_apart:
            try:
                self._add_draft(draft, num_shared, context)
            except ContextError as error:
                drop_draft(error.message)
        if self._has_own_heads and is_alone:
            self._add_head(DraftKind.MTP, self._model, context)
        return context

    def clear(self) -> None:
        """Empty all caches."""
        for context in self.all:
            context.clear()

    def close(self) -> None:
        """Close everything; closing again does nothing."""
        self.all, self._heads, self.drafters = [], [], []
        self._resources.close()

    def _add_draft(self, draft: Model, num_shared: int, context: LlamaContext) -> None:
        n_seq = context.settings.n_seq
        if draft.header.kind is not DraftKind.MODEL:
            if n_seq == 1:
                self._add_head(draft.header.kind, draft, context)
            return
        n_ctx = min(context.n_ctx, draft.n_ctx_train, self._settings.draft_n_ctx or context.n_ctx)
        drafting = self._open_context(draft, n_ctx, n_seq, self._arithmetic, n_seq=n_seq, n_cells=context.n_ctx)
        if drafting.rollback is Rollback.NONE:
            self.all.remove(drafting)
            drafting.close()
            raise ContextError(f"the draft: {_CANNOT_GO_BACK}", "use another draft")
        self.drafters.append(ModelDrafter(drafting, num_shared, self._model.vocab.eog))

    def _add_head(self, kind: DraftKind, model: Model, context: LlamaContext) -> None:
        drafter, head = open_head(kind, model, context, self._model.vocab.eog, self._resources)
        self.drafters.append(drafter)
        self._heads.append(head)

    def _open_context(
        self,
        model: Model,
        n_ctx: int,
        max_rows: int,
        arithmetic: Arithmetic,
        taps: tuple[int, ...] = (),
        **cells: Any,  # noqa: ANN401
    ) -> LlamaContext:
        """`cells`: of several sequences, as in `ContextSettings`."""
        settings = ContextSettings(
            n_ctx=n_ctx,
            n_threads=self._num_threads,
            cache_type_k=arithmetic.cache_type_k,
            cache_type_v=arithmetic.cache_type_v,
            max_rows=max_rows,
            n_batch=N_BATCH,
            replay_width=1 if self._exact else None,
            taps=taps,
            **cells,
        )
        context = self._resources.enter_context(closing(LlamaContext(model, settings)))
        self.all.append(context)
        return context
