"""Whether a draft fits a target, judged by their headers alone.

llama.cpp ends the whole process where a head does not fit. So everything that headers can tell is checked here, before
anything is downloaded or loaded.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from specgguf.headers.gguf import GgufHeader
from specgguf.headers.heads import (
    DraftKind,
    architecture,
    block_size,
    is_dflash2,
    is_split,
    kind_of,
    mask_token,
    num_nextn_layers,
    number,
    tapped_layers,
)
from specgguf.headers.parity import Parity, ParityReport, compare, has_vocabulary, read_tokenizer

_MTP_ARCHITECTURES = (
    *("bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa", "glm4moe", "hy_v3", "mimo2"),
    *("nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "step35"),
)
"""Those that llama.cpp has an MTP graph for. glm5-next has the layers, but no graph yet."""

_SEVERAL_MTP_LAYERS = ("hy_v3", "mimo2", "step35")
_MTP_TENSORS = ("nextn.eh_proj", "nextn.enorm", "nextn.hnorm")
_MORE_MTP_TENSORS = {
    "bailingmoe3": ("nextn.shared_head_norm",),
    "cohere2moe": ("ffn_gate_inp",),
    "glm-dsa": ("ffn_gate_inp",),
    "glm4moe": ("ffn_gate_inp",),
    "mimo2": ("attn_qkv", "ffn_gate", "ffn_down", "ffn_up"),
    "nemotron_h_moe": ("nextn.shared_head_norm",),
    "qwen35moe": ("ffn_gate_inp",),
}

_TAPPED_ARCHITECTURES = (
    *("bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2", "lfm2moe", "llama"),
    *("mimo2", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe"),
    *("qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next"),
)
"""Those whose layers llama.cpp hands out. hunyuan-dense, lfm2moe and nemotron_h_moe have the graph of a relative."""

_TAPPED_AT_THE_END = ("deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe")
"""Those where also what the last layer puts out can be had."""

_FEED_FORWARD = ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
_ATTENTION = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output")
_NUM_EAGLE3_TAPS = 3
_I64 = 27
"""llama.cpp's number for tensors of 64-bit integers."""


def check_head(target: GgufHeader, head: GgufHeader) -> ParityReport:
    """Judge whether `head` can draft for `target`; for the MTP layers of the target's own file, give it twice.

    An *incompatible* head would end the process, or draft nonsense: `reasons` says why. A model of its own is judged by
    its tokenizer alone. Raises MalformedError if a file has a vocabulary that cannot be used.
    """
    kind = kind_of(head, target)
    tokenizer = read_tokenizer(target)
    if kind is DraftKind.MODEL:
        return compare(tokenizer, read_tokenizer(head))
    num_tokens = len(tokenizer.tokens)
    if has_vocabulary(head):
        own = read_tokenizer(head)
        # A head is given tokens, never text, and only the target says where a text ends.
        report = compare(tokenizer, replace(own, special=tokenizer.special, adds=tokenizer.adds))
        num_own = len(own.tokens)
    else:
        # llama.cpp makes up as many tokens as the file claims to have.
        report = ParityReport(Parity.IDENTICAL, num_tokens, [], [])
        num_own = number(head, "vocab_size")
    fatal = (
        report.reasons
        if report.verdict is Parity.INCOMPATIBLE
        else list(_differs("number of ids", num_tokens, num_own))
    )
    fatal = [*_CHECKS[kind](target, head, num_tokens), *fatal]
    return replace(report, verdict=Parity.INCOMPATIBLE, reasons=fatal) if fatal else report


def _check_mtp(target: GgufHeader, head: GgufHeader, _: int) -> Iterator[str]:
    name, num_layers, num_blocks = architecture(head), num_nextn_layers(head), number(head, "block_count")
    if head != target:
        yield from _differs("architecture", architecture(target), name)
        yield from _differs("width", number(target, "embedding_length"), number(head, "embedding_length"))
        yield from _missing(head, ["token_embd.weight"])
    if name not in _MTP_ARCHITECTURES:
        yield f"llama.cpp cannot run MTP layers of the architecture {name}"
    elif num_layers > 1 and name not in _SEVERAL_MTP_LAYERS:
        yield f"it has {num_layers} MTP layers, and llama.cpp runs only one of the architecture {name}"
    if num_layers >= num_blocks:
        yield f"{num_layers} of its {num_blocks} layers are MTP layers"
    elif is_split(head):
        yield "its MTP layers cannot be checked, because it is split into several files"
    else:
        norm = () if "output_norm.weight" in head.tensors else ("nextn.shared_head_norm",)
        names = dict.fromkeys((*_MTP_TENSORS, *_MORE_MTP_TENSORS.get(name, ()), *norm))
        yield from _missing_in_blocks(head, range(num_blocks - num_layers, num_blocks), list(names))


def _check_assistant(target: GgufHeader, head: GgufHeader, num_tokens: int) -> Iterator[str]:
    num_blocks = number(head, "block_count")
    if architecture(target) != "gemma4":
        yield f"it is for Gemma 4, and the target's architecture is {architecture(target)}"
    yield from _differs("width", number(target, "embedding_length"), number(head, "embedding_length_out"))
    # It reads the keys and values that the target has stored.
    for key in ("attention.key_length", "attention.key_length_swa"):
        yield from _differs(key, number(target, key), number(head, key))
    if num_nextn_layers(head) != num_blocks:
        yield f"only {num_nextn_layers(head)} of its {num_blocks} layers are MTP layers"
    yield from _has_shape(head, "token_embd.weight", (number(head, "embedding_length"), num_tokens))
    names = ("token_embd", "output_norm", "nextn.pre_projection", "nextn.post_projection")
    yield from _missing(head, [f"{name}.weight" for name in names])
    attention = ("attn_norm", "attn_q", "attn_q_norm", "attn_output", "post_attention_norm")
    block = (*attention, *_FEED_FORWARD, "post_ffw_norm", "layer_output_scale")
    yield from _missing_in_blocks(head, range(num_blocks), block)


def _check_eagle3(target: GgufHeader, head: GgufHeader, num_tokens: int) -> Iterator[str]:
    layers, num_blocks = tapped_layers(head), number(head, "block_count")
    width, target_width = number(head, "embedding_length"), number(target, "embedding_length")
    if len(layers) != _NUM_EAGLE3_TAPS:
        yield f"it reads {len(layers)} layers of the target, and llama.cpp wants {_NUM_EAGLE3_TAPS} for EAGLE-3"
    if num_blocks != 1:
        yield f"it has {num_blocks} layers, and llama.cpp wants one for EAGLE-3"
    if number(head, "target_hidden_size") != target_width:
        yield f"it is for a target of width {number(head, 'target_hidden_size')}, and this one has {target_width}"
    borrowed = [name for name in ("token_embd.weight", "output.weight") if name not in head.tensors]
    if borrowed and width != target_width:
        yield f"its width is {width}, so it needs {' and '.join(borrowed)} of its own"
    yield from _check_fusion(target, head, (_NUM_EAGLE3_TAPS * target_width, width), num_tokens)
    yield from _missing(head, ["fc.weight", "output_norm.weight"])
    yield from _missing_in_blocks(head, range(num_blocks), [*_ATTENTION, "attn_norm_2", *_FEED_FORWARD])


def _check_dflash(target: GgufHeader, head: GgufHeader, num_tokens: int) -> Iterator[str]:
    if is_dflash2(head):
        yield "it is a DFlash2 head, which specgguf cannot use yet"
        return
    if block_size(head) < 2:
        yield f"its block size is {block_size(head)}, which leaves no room for draft tokens"
    yield from _check_block(target, head, num_tokens)


def _check_dspark(target: GgufHeader, head: GgufHeader, num_tokens: int) -> Iterator[str]:
    if block_size(head) < 1:
        yield "it does not say its block size"
    yield from _missing(head, ["markov_w1.weight", "markov_w2.weight"])
    rank = next(iter(head.tensors["markov_w1.weight"].shape), 0) if "markov_w1.weight" in head.tensors else 0
    yield from _has_shape(head, "markov_w1.weight", (rank, num_tokens))
    yield from _has_shape(head, "markov_w2.weight", (rank, _num_outputs(head, num_tokens)))
    yield from _check_block(target, head, num_tokens)


def _check_block(target: GgufHeader, head: GgufHeader, num_tokens: int) -> Iterator[str]:
    """What DFlash and DSpark, which guess a block at once, have in common."""
    layers, mask, width = tapped_layers(head), mask_token(head), number(head, "embedding_length")
    if not layers:
        yield "it does not say which layers of the target it reads"
    if mask is None:
        yield "it has no mask token"
    elif not 0 <= mask < num_tokens:
        yield f"its mask token is {mask}, and the target has {num_tokens} ids"
    yield from _differs("width", number(target, "embedding_length"), width)
    yield from _check_fusion(target, head, (len(layers) * width, width), num_tokens)
    yield from _missing(head, ["fc.weight", "enc.output_norm.weight", "output_norm.weight"])
    usual = (*_ATTENTION, "attn_q_norm", "attn_k_norm", *_FEED_FORWARD)
    # A head for DeepSeek 4 has blocks like its target's.
    names = ("attn_norm", "ffn_norm") if number(head, "hyper_connection.count") else usual
    yield from _missing_in_blocks(head, range(number(head, "block_count")), names)


_CHECKS: dict[DraftKind, Callable[[GgufHeader, GgufHeader, int], Iterator[str]]] = {
    DraftKind.MTP: _check_mtp,
    DraftKind.ASSISTANT: _check_assistant,
    DraftKind.EAGLE3: _check_eagle3,
    DraftKind.DFLASH: _check_dflash,
    DraftKind.DSPARK: _check_dspark,
}
"""What is wrong with a head for a target with that many ids."""


def _check_fusion(target: GgufHeader, head: GgufHeader, fc: tuple[int, int], num_tokens: int) -> Iterator[str]:
    """What the heads have in common that make one row of several layers of the target: `fc` is that tensor's shape."""
    yield from _check_taps(target, tapped_layers(head))
    keys, values = number(head, "attention.key_length"), number(head, "attention.value_length")
    if keys and values and keys != values:
        yield f"its keys have the length {keys}, its values {values}"
    yield from _has_shape(head, "fc.weight", fc)
    table, num_outputs = head.tensors.get("d2t"), _num_outputs(head, num_tokens)
    if table and (table.type != _I64 or len(table.shape) != 1):
        yield "its table d2t is not one row of 64-bit integers"
    if "output.weight" not in head.tensors and num_outputs != num_tokens:
        yield "it has a table d2t, but no output.weight of its own"
    yield from _has_shape(head, "output.weight", (fc[1], num_outputs))
    yield from _has_shape(head, "token_embd.weight", (fc[1], num_tokens))


def _check_taps(target: GgufHeader, layers: Sequence[int]) -> Iterator[str]:
    name = architecture(target)
    if name not in _TAPPED_ARCHITECTURES:
        yield f"it reads layers of the target, and llama.cpp does not hand out those of the architecture {name}"
        return
    num_layers = number(target, "block_count") - num_nextn_layers(target)
    last = num_layers if name in _TAPPED_AT_THE_END else num_layers - 1
    wrong = [layer for layer in layers if not 0 <= layer <= last]
    if wrong:
        yield f"it reads layer {wrong[0]} of the target, and llama.cpp hands out layers 0 to {last}"


def _differs(what: str, target: int | str, head: int | str) -> Iterator[str]:
    if target != head:
        yield f"{what} {target} in the target, {head} in the head"


def _has_shape(head: GgufHeader, name: str, shape: tuple[int, ...]) -> Iterator[str]:
    """What is wrong with the shape of a tensor; nothing if there is no such tensor."""
    tensor = head.tensors.get(name)
    if tensor and tensor.shape != shape:
        yield f"its tensor {name} has the shape {list(tensor.shape)} and not {list(shape)}"


def _missing(header: GgufHeader, names: Sequence[str]) -> Iterator[str]:
    yield from (f"its tensor {name} is missing" for name in names if name not in header.tensors)


def _missing_in_blocks(header: GgufHeader, blocks: range, names: Sequence[str]) -> Iterator[str]:
    """What the first incomplete block lacks. Only the first, because a damaged file may claim millions of blocks."""
    for block in blocks:
        missing = list(_missing(header, [f"blk.{block}.{name}.weight" for name in names]))
        if missing:
            yield from missing
            return


def _num_outputs(head: GgufHeader, num_tokens: int) -> int:
    """How many tokens a head can draft: as many as its table d2t lists, else all."""
    table = head.tensors.get("d2t")
    return next(iter(table.shape), 0) if table else num_tokens
