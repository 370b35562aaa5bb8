"""Headers of draft heads and of targets for them: metadata and tensor lists, without weights."""

import numpy as np
from gguf import GGUFWriter

from specgguf.headers import gguf

NUM_TOKENS, WIDTH, LAYERS = 300, 64, 4
FFN = ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
ATTENTION = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output")
NEXTN = ("nextn.eh_proj", "nextn.enorm", "nextn.hnorm")
TOKENS = [f"token {number}" for number in range(NUM_TOKENS)]


def target(folder, architecture="llama", layers=LAYERS, nextn=0, missing=(), extra=(), **keys):
    """A model; its last `nextn` layers are MTP layers."""
    blocks = {f"blk.{i}.{name}.weight": (WIDTH,) for i in range(layers) for name in (*ATTENTION, *FFN)}
    for i in range(layers - nextn, layers):
        blocks |= {f"blk.{i}.{name}.weight": (WIDTH,) for name in (*NEXTN, *extra)}
    tensors = {"token_embd.weight": (NUM_TOKENS, WIDTH), "output_norm.weight": (WIDTH,), **blocks}
    keys = {"embedding_length": WIDTH, "block_count": layers, "nextn_predict_layers": nextn, **keys}
    return header(folder, architecture, keys, tensors, missing)


def mtp(folder, architecture="qwen35", missing=(), tensors=(), **keys):
    """The MTP layer of `target(architecture, nextn=1)` in a file of its own."""
    last = f"blk.{LAYERS - 1}."
    found = {f"{last}{name}.weight": (WIDTH,) for name in (*ATTENTION, *FFN, *NEXTN)}
    found |= {"token_embd.weight": (NUM_TOKENS, WIDTH), "output_norm.weight": (WIDTH,), **dict(tensors)}
    return header(
        folder,
        architecture,
        {"embedding_length": WIDTH, "block_count": LAYERS, "nextn_predict_layers": 1, **keys},
        found,
        missing,
    )


def eagle3(folder, missing=(), tensors=(), width=WIDTH, **keys):
    found = {f"blk.0.{name}.weight": (width,) for name in (*ATTENTION, "attn_norm_2", *FFN)}
    found |= {"fc.weight": (width, 3 * WIDTH), "output_norm.weight": (width,), **dict(tensors)}
    keys = {"block_count": 1, "target_hidden_size": WIDTH, "target_layers": [1, 2, 3], **keys}
    return header(folder, "eagle3", {"embedding_length": width, **keys}, found, missing)


def dflash(folder, missing=(), tensors=(), **keys):
    names = (*ATTENTION, "attn_q_norm", "attn_k_norm", *FFN)
    found = {f"blk.{i}.{name}.weight": (WIDTH,) for i in range(2) for name in names}
    found |= {"fc.weight": (WIDTH, 3 * WIDTH), "enc.output_norm.weight": (WIDTH,), "output_norm.weight": (WIDTH,)}
    usual = {"embedding_length": WIDTH, "block_count": 2, "block_size": 5, "target_layers": [1, 2, 3], "mask": 7}
    return header(folder, "dflash", {**usual, **keys}, {**found, **dict(tensors)}, missing)


def dspark(folder, tensors=(), **settings):
    markov = {"markov_w1.weight": (NUM_TOKENS, 8), "markov_w2.weight": (NUM_TOKENS, 8)}
    return dflash(folder, tensors={**markov, **dict(tensors)}, **settings)


def assistant(folder, missing=(), tensors=(), **keys):
    names = ("attn_norm", "attn_q", "attn_q_norm", "attn_output", "post_attention_norm", *FFN)
    names += ("post_ffw_norm", "layer_output_scale")
    found = {f"blk.{i}.{name}.weight": (32,) for i in range(2) for name in names}
    found |= {"token_embd.weight": (NUM_TOKENS, 32), "output_norm.weight": (32,)}
    found |= {"nextn.pre_projection.weight": (32, 128), "nextn.post_projection.weight": (64, 32), **dict(tensors)}
    usual = {"embedding_length": 32, "embedding_length_out": WIDTH, "block_count": 2, "nextn_predict_layers": 2}
    return header(folder, "gemma4-assistant", {**usual, **keys}, found, missing)


def path(folder, architecture, keys, tensors, missing=()):
    """Write a file. `keys` without the architecture's name; those that are None are left out.

    `tokens`, `mask` and `parts` are the vocabulary, the mask token, and the number of files of a split model. `tensors`
    are shapes as numpy has them, or a shape and a type.
    """
    keys = {"tokens": TOKENS, "mask": None, "parts": None, **keys}
    tokens, mask, parts = (keys.pop(name) for name in ("tokens", "mask", "parts"))
    found = folder / f"{architecture}-{len(list(folder.iterdir()))}.gguf"
    writer = GGUFWriter(found, architecture)
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(tokens)
    if mask is not None:
        writer.add_mask_token_id(mask)
    if parts:
        writer.add_uint16("split.count", parts)
    for key, value in keys.items():
        add = writer.add_array if isinstance(value, list) else writer.add_uint32
        if value is not None:
            add(f"{architecture}.{key}", value)
    for name, entry in tensors.items():
        if name not in missing:
            shape, kind = entry if isinstance(entry[0], tuple) else (entry, np.float32)
            writer.add_tensor_info(name, shape, np.dtype(kind), 4 * int(np.prod(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return found


def header(*arguments):
    return gguf.parse(path(*arguments).read_bytes())


def file(folder, head, **settings):
    """What `head`, one of the above, writes: long enough for the tensors that its header promises."""
    inside = folder / f"head-{len(list(folder.iterdir()))}"
    inside.mkdir()
    head(inside, **settings)
    (found,) = inside.iterdir()
    with found.open("ab") as opened:
        opened.truncate(1 << 20)
    return found
