"""From the file of a draft head to a drafter."""

from collections.abc import Collection
from contextlib import ExitStack, closing

from specgguf.drafters.dflash import DflashDrafter
from specgguf.drafters.eagle3 import Eagle3Drafter
from specgguf.drafters.mtp import AssistantDrafter, MtpDrafter
from specgguf.engine.settings import N_BATCH
from specgguf.headers.gguf import GgufHeader
from specgguf.headers.heads import DraftKind, block_size, mask_token, num_nextn_layers, tapped_layers
from specgguf.llama.context import LlamaContext
from specgguf.llama.head import HeadSettings, LlamaHead
from specgguf.llama.model import Model
from specgguf.speculative.context import NEXTN
from specgguf.speculative.drafter import Drafter

_BLOCK_SIZE = 16
"""Of a DFlash head that does not say."""
_ENCODED = 64
"""Rows of a batch of EAGLE-3: llama.cpp keeps logits for each, and a vocabulary is large."""


def taps_of(kind: DraftKind, header: GgufHeader) -> tuple[int, ...]:
    """What of the target a head reads."""
    if kind is DraftKind.MODEL:
        return ()
    return (NEXTN,) if kind in (DraftKind.MTP, DraftKind.ASSISTANT) else tapped_layers(header)


def open_head(
    kind: DraftKind, model: Model, target: LlamaContext, eog: Collection[int], resources: ExitStack
) -> tuple[Drafter, LlamaHead]:
    """A drafter, and the head's context, which `resources` closes; `model` is the head's, or the target's own.

    Raises ContextError where llama.cpp cannot open it.
    """
    header, threads = model.header.gguf, target.settings.n_threads

    def opened(max_rows: int, n_batch: int = N_BATCH, **settings: bool) -> LlamaHead:
        head = LlamaHead(model, target, HeadSettings(n_batch, threads, max_rows, **settings))
        return resources.enter_context(closing(head))

    if kind is DraftKind.EAGLE3:
        head = opened(_ENCODED, _ENCODED)
        return Eagle3Drafter(head, tapped_layers(header), eog), head
    if kind is DraftKind.ASSISTANT:
        head = opened(1, is_mtp=True, shares_cells=True)
        return AssistantDrafter(head, eog), head
    if kind is DraftKind.MTP:
        layers = num_nextn_layers(header)
        head = opened(layers + 1, is_mtp=True)
        return MtpDrafter(head, eog, layers), head
    block = min(block_size(header) or _BLOCK_SIZE, N_BATCH)
    is_dspark = kind is DraftKind.DSPARK
    head = opened(
        block + 1,
        is_causal=header.metadata.get("dflash.attention.causal") is True,
        gives_rows=is_dspark,
    )
    from_anchor = is_dspark and header.metadata.get("dflash.sample_from_anchor") is not False
    return DflashDrafter(head, tapped_layers(header), eog, mask_token(header) or 0, block, from_anchor), head
