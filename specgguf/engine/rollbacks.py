"""How caches give tokens back. Only an open context knows; its model's weights are not needed for that."""

from contextlib import closing

from specgguf.engine.settings import N_BATCH
from specgguf.llama.context import ContextSettings, LlamaContext
from specgguf.llama.model import Model
from specgguf.models.header import ModelHeader
from specgguf.speculative.context import Rollback


def rollback_of(header: ModelHeader, num_draft: int) -> Rollback:
    """Of a model that verifies so many draft tokens at once; 0 for a draft model.

    Raises ModelError for an unusable file, ContextError where llama.cpp cannot open a context for it.
    """
    settings = ContextSettings(N_BATCH, 1, "f16", "f16", num_draft + 1, N_BATCH)
    with closing(Model(header, 0, with_weights=False)) as model, closing(LlamaContext(model, settings)) as context:
        return context.rollback
