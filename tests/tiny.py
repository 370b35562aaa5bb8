"""GGUF files with random weights, written when tests start.

An attention model answers the same however its text is cut into batches. Queries, keys and values are sums of a few
equal steps, which need no rounding in whatever order they are added up, and one layer is all there is, so that nothing
in the cache depends on the attention. What is left moved logits by four millionths at most, with BF16 cells; with F16
ones and several threads llama.cpp rounds the attention itself, behind 256 tokens.
"""

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

WORDS = ["▁the", "▁a", "▁cat", "▁sat", "▁on", "▁mat", ".", ",", "▁and", "▁dog"]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
EMBED, HEADS, FEED, LAYERS, INNER, STATE, CONV = 64, 4, 128, 1, 128, 16, 4
STEP = 0.25
EPSILON = 1e-9  # nothing beside the square of a step: the norm only scales

_PRINTED = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
BYTE_NAMES = [chr(byte if byte in _PRINTED else 256 + _OTHERS.index(byte)) for byte in range(256)]
"""How GPT-2's vocabulary spells bytes."""


def write_attention(
    path: Path,
    seed=1,
    words=WORDS,
    template=TEMPLATE,
    bos=True,
    n_ctx=2048,
    sampling=None,
    controls=(),
    feed=FEED,
    pre=None,
) -> Path:
    """A model of llama's architecture; while greedy it says small letters and words, and never ends.

    `controls`: names of control tokens, behind the words. It says none by itself. `pre`: a pre-tokenizer of llama.cpp;
    then the tokens of bytes have GPT-2's names.
    """
    writer = GGUFWriter(path, "llama")
    said, words = spoken(words), [*words, *controls]
    add_common(writer, words, template, bos, n_ctx, controls=controls, pre=pre)
    for name, value in (sampling or {}).items():
        add = writer.add_int32 if isinstance(value, int) else writer.add_float32
        add(f"general.sampling.{name}", value)
    writer.add_feed_forward_length(feed)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(EMBED // HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    random = Weights(writer, seed)
    random.signs("token_embd.weight", num_tokens(words), EMBED)
    random.add("output.weight", num_tokens(words), EMBED, only=said)
    random.ones("output_norm.weight", EMBED)
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v"):
            random.signs(f"blk.{layer}.{name}.weight", EMBED, EMBED)
        random.add(f"blk.{layer}.attn_output.weight", EMBED, EMBED)
        random.add(f"blk.{layer}.ffn_gate.weight", feed, EMBED)
        random.add(f"blk.{layer}.ffn_up.weight", feed, EMBED)
        random.add(f"blk.{layer}.ffn_down.weight", EMBED, feed)
        random.ones(f"blk.{layer}.attn_norm.weight", EMBED)
        random.ones(f"blk.{layer}.ffn_norm.weight", EMBED)
    return finish(writer, path)


def write_recurrent(path: Path, seed=1, words=WORDS) -> Path:
    """A Mamba model: its state cannot be rolled back."""
    writer = GGUFWriter(path, "mamba")
    add_common(writer, words)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(CONV)
    writer.add_layer_norm_rms_eps(1e-5)
    random = Weights(writer, seed)
    random.add("token_embd.weight", num_tokens(words), EMBED)
    random.ones("output_norm.weight", EMBED)
    for layer in range(LAYERS):
        random.ones(f"blk.{layer}.attn_norm.weight", EMBED)
        random.add(f"blk.{layer}.ssm_in.weight", 2 * INNER, EMBED)
        random.add(f"blk.{layer}.ssm_conv1d.weight", INNER, CONV)
        random.add(f"blk.{layer}.ssm_conv1d.bias", INNER)
        random.add(f"blk.{layer}.ssm_x.weight", CONV + 2 * STATE, INNER)
        random.add(f"blk.{layer}.ssm_dt.weight", INNER, CONV)
        random.add(f"blk.{layer}.ssm_dt.bias", INNER)
        writer.add_tensor(f"blk.{layer}.ssm_a", -np.ones((INNER, STATE), np.float32))
        random.ones(f"blk.{layer}.ssm_d", INNER)
        random.add(f"blk.{layer}.ssm_out.weight", EMBED, INNER)
    return finish(writer, path)


class Weights:
    def __init__(self, writer, seed):
        self.writer = writer
        self.random = np.random.default_rng(seed)

    def add(self, name, *shape, only=slice(None), scale=0.3):
        """Only those rows, in place of zeros."""
        weights = np.zeros(shape, np.float32)
        weights[only] = self.random.normal(0, scale, shape)[only]
        self.put(name, weights)

    def put(self, name, weights):
        self.writer.add_tensor(name, np.ascontiguousarray(weights, np.float32))

    def signs(self, name, *shape):
        self.put(name, self.random.choice((-STEP, STEP), shape))

    def ones(self, name, *shape):
        self.put(name, np.ones(shape))


def num_tokens(words=WORDS):
    return 3 + 256 + len(words)


def spoken(words=WORDS):
    """Ids of small letters and words, without [PAD], which llama.cpp takes for an end."""
    said = [number for number, word in enumerate(words, 3 + 256) if word != "[PAD]"]
    return [*range(3 + ord("a"), 3 + ord("z") + 1), *said]


def add_common(
    writer, words=WORDS, template=TEMPLATE, bos=True, n_ctx=2048, embed=EMBED, layers=LAYERS, controls=(), pre=None
):
    """What every file says of itself, and the tokenizer."""
    writer.add_name("toy")
    writer.add_file_type(0)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(embed)
    writer.add_block_count(layers)
    writer.add_tokenizer_model("gpt2" if pre else "llama")
    of_bytes = BYTE_NAMES if pre else [f"<0x{byte:02X}>" for byte in range(256)]
    names = [f"[{word}]" if word in of_bytes else word for word in words]
    writer.add_token_list(["<unk>", "<s>", "</s>", *of_bytes, *names])
    if pre:
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges(["A A"])
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(words))])
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    of_words = [TokenType.CONTROL if word in controls else TokenType.NORMAL for word in words]
    writer.add_token_types([*kinds, *[TokenType.NORMAL if pre else TokenType.BYTE] * 256, *of_words])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(bos)
    if template:
        writer.add_chat_template(template)


def finish(writer, path):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
