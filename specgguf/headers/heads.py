"""Draft heads: small networks that read a target's inner layers, and guess its next tokens from them."""

from enum import StrEnum

from specgguf.headers.gguf import GgufHeader


class DraftKind(StrEnum):
    """What drafts: a model of its own, or a head."""

    MODEL = "model"
    MTP = "mtp"
    """Layers inside the target's own file, or such layers in a file beside it."""
    ASSISTANT = "assistant"
    """Gemma 4's: a file beside the target, which reads the target's cache."""
    EAGLE3 = "eagle3"
    DFLASH = "dflash"
    DSPARK = "dspark"

    @property
    def label(self) -> str:
        """What people call it."""
        return _LABELS[self]


_LABELS = {
    DraftKind.MODEL: "draft model",
    DraftKind.MTP: "MTP head",
    DraftKind.ASSISTANT: "Gemma 4 assistant",
    DraftKind.EAGLE3: "EAGLE-3 head",
    DraftKind.DFLASH: "DFlash head",
    DraftKind.DSPARK: "DSpark head",
}


def kind_of(draft: GgufHeader, target: GgufHeader | None = None) -> DraftKind:
    """What kind of draft a file is. For the target's own file it is MTP, if that has MTP layers."""
    kind = architecture(draft)
    if kind == "gemma4-assistant":
        return DraftKind.ASSISTANT
    if kind == "eagle3":
        return DraftKind.EAGLE3
    if kind == "dflash":
        return DraftKind.DSPARK if {"markov_w1.weight", "markov_w2.weight"} & set(draft.tensors) else DraftKind.DFLASH
    if num_nextn_layers(draft) and (_has_only_nextn_layers(draft) or draft == target):
        return DraftKind.MTP
    return DraftKind.MODEL


def architecture(header: GgufHeader) -> str:
    """llama.cpp's name for a file's architecture; empty if it has none."""
    return header.text("general.architecture") or ""


def number(header: GgufHeader, key: str) -> int:
    """The number under a key of the file's architecture, which is left out of `key`; 0 if there is none."""
    return header.number(f"{architecture(header)}.{key}") or 0


def num_nextn_layers(header: GgufHeader) -> int:
    """How many MTP layers a file says to have, at the end of its `block_count` layers."""
    return max(0, number(header, "nextn_predict_layers"))


def tapped_layers(head: GgufHeader) -> tuple[int, ...]:
    """The target's layers whose input a head reads, in its order; empty if it names none."""
    layers = head.metadata.get(f"{architecture(head)}.target_layers")
    whole = isinstance(layers, tuple) and all(type(layer) is int for layer in layers)
    return tuple(map(int, layers)) if whole and isinstance(layers, tuple) else ()


def block_size(head: GgufHeader) -> int:
    """The length of the blocks that a DFlash or DSpark head was trained on, in tokens; 0 if it does not say."""
    return max(0, number(head, "block_size"))


def mask_token(head: GgufHeader) -> int | None:
    """The token that stands for those to be guessed; None if there is none."""
    return head.number("tokenizer.ggml.mask_token_id")


def is_dflash2(head: GgufHeader) -> bool:
    """Whether a DFlash head drafts several tokens for each position, which llama.cpp leaves to its callers to sort."""
    return number(head, "selector_top_k") > 0


def is_split(header: GgufHeader) -> bool:
    """Whether a file is a part of a model, so that it lacks tensors of the other parts."""
    return (header.number("split.count") or 1) > 1


def _has_only_nextn_layers(header: GgufHeader) -> bool:
    """Whether the layers before the MTP layers are missing."""
    blocks = any(name.startswith("blk.0.") for name in header.tensors)
    return bool(header.tensors) and not blocks and not is_split(header)
