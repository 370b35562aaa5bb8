"""What a file is for, where that is not generating text token by token."""

from specgguf.headers.gguf import GgufHeader
from specgguf.headers.heads import architecture

_RANK = 4
"""llama.cpp's number for the pooling of rerankers."""
_DIFFUSION = ("dream", "llada", "llada-moe", "rnd1")
_KINDS = {"adapter": "an adapter for a model", "mmproj": "a projector of images or sound"}


def other_purpose(header: GgufHeader) -> str | None:
    """What a file is that does not generate text token by token; None for a language model."""
    name, kind = architecture(header), header.text("general.type") or ""
    pooling, causal = header.number(f"{name}.pooling_type"), header.metadata.get(f"{name}.attention.causal")
    if kind in _KINDS:
        return _KINDS[kind]
    if name in _DIFFUSION:
        return "a diffusion model"
    if pooling == _RANK or "cls.output.weight" in header.tensors:
        return "a reranker"
    if pooling or causal is False or "bert" in name or name in ("gemma-embedding", "t5encoder"):
        return "an embedding model"
    return None
