"""GGUF files with random weights, written when tests start: caches of every kind, and draft heads with their targets.

In a target of heads the embeddings are strong and the layers weak, so that what comes next depends mostly on the last
token. A head that hands that token on is right often, and wrong often enough.
"""

from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from tests.tiny import CONV, EMBED, FEED, HEADS, INNER, STATE, Weights, add_common, finish, num_tokens, spoken

SIZE = EMBED // HEADS
"""Of a head of attention."""
VOCAB = num_tokens()
MASK = VOCAB - 1
TAPS = (1, 2, 3)
BLOCK = 5
WINDOW = 24
NARROW = EMBED // 2


class Net(Weights):
    """A file in the making."""

    def __init__(self, path: Path, architecture: str, layers: int, keys, seed, scale=0.1, embed=EMBED, kv_heads=HEADS):
        """`keys`: metadata, by name without the architecture's; `scale`: how strong the layers are."""
        super().__init__(GGUFWriter(path, architecture), seed)
        self.first = 0
        """The layers before that one are left out of the file."""
        self.path, self.architecture, self.scale, self.width = path, architecture, scale, embed
        add_common(self.writer, embed=embed, layers=layers)
        usual = {
            "feed_forward_length": FEED,
            "attention.head_count": HEADS,
            "attention.head_count_kv": kv_heads,
            "attention.key_length": SIZE,
            "attention.value_length": SIZE,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": SIZE,
        }
        for name, value in {**usual, **keys}.items():
            self.key(name, value)

    def put(self, name, weights):
        layer = int(name.split(".")[1]) if name.startswith("blk.") else self.first
        if layer >= self.first:
            super().put(name, weights)

    def key(self, name, value):
        kinds = {bool: self.writer.add_bool, int: self.writer.add_uint32, float: self.writer.add_float32}
        kinds |= {list: self.writer.add_array}
        kinds[type(value)](f"{self.architecture}.{name}", value)

    def layer(self, number, kind="", **shapes):
        """Weights of one layer by name; those with one dimension are gains of 1."""
        for name, shape in shapes.items():
            full = f"blk.{number}.{kind}{name}"
            if len(shape) > 1:
                self.add(f"{full}.weight", *shape, scale=self.scale)
            else:
                self.ones(f"{full}.weight", *shape)

    def tables(self, only=None):
        """Embeddings, and an output that says `only` these tokens; those of the vocabulary that are spoken if None."""
        self.add("token_embd.weight", VOCAB, EMBED, scale=1.0)
        self.add("output.weight", VOCAB, EMBED, only=spoken() if only is None else only)
        self.ones("output_norm.weight", EMBED)

    def attention(self, number, queries=1, norms=False):
        """`queries`: their width in units of the embedding's."""
        shapes = {"attn_q": (queries * EMBED, self.width), "attn_k": (EMBED, self.width), "attn_v": (EMBED, self.width)}
        self.layer(number, attn_norm=(self.width,), attn_output=(self.width, EMBED), **shapes)
        if norms:
            self.layer(number, attn_q_norm=(SIZE,), attn_k_norm=(SIZE,))

    def feed_forward(self, number, norm="ffn_norm", name="ffn"):
        wide, narrow = (FEED, self.width), (self.width, FEED)
        self.layer(number, **{norm: (self.width,), f"{name}_gate": wide, f"{name}_up": wide, f"{name}_down": narrow})

    def nextn(self, number):
        """An MTP layer's way in: the token as it is, and a little of the target's hidden state."""
        self.layer(number, "nextn.", enorm=(EMBED,), hnorm=(EMBED,))
        self.put(f"blk.{number}.nextn.eh_proj.weight", self.beside(np.eye(EMBED), 0.03))

    def beside(self, left, scale):
        """A matrix that takes two rows put together: `left` for the first one, noise for the other."""
        return np.hstack([left, self.random.normal(0, scale, (len(left), EMBED))])

    def finish(self):
        return finish(self.writer, self.path)


HEADS_AND_TARGETS = {
    "eagle3": "llama",
    "dflash": "terse",
    "dspark": "terse",
    "assistant": "gemma4",
    "mimo2": "mimo2",
    "mimo2 of 3": "mimo2 of 3",
    "glm4moe": "glm4moe",
    "qwen35": "qwen35",
    "mimo2's layer": "mimo2",
    "mimo2's 3 layers": "mimo2 of 3",
    "glm4moe's layer": "glm4moe",
    "qwen35's layer": "qwen35",
}
"""By what drafts, its target, in the names of `write_all`. Some targets draft for themselves."""
FEW = range(3 + ord("a"), 3 + ord("a") + 6)
"""All that a target of DFlash says: with weights at random, a draft of so few is right now and then."""


def write_all(folder: Path) -> dict[str, Path]:
    """All heads and their targets, by name."""
    write_gemma4(folder / "gemma4.gguf", folder / "assistant.gguf")
    return {
        "gemma4": folder / "gemma4.gguf",
        "assistant": folder / "assistant.gguf",
        "llama": write_llama(folder / "llama.gguf"),
        "terse": write_llama(folder / "terse.gguf", only=FEW),
        "eagle3": write_eagle3(folder / "eagle3.gguf"),
        "dflash": write_dflash(folder / "dflash.gguf"),
        "dspark": write_dflash(folder / "dspark.gguf", markov=True),
        "mimo2": write_mimo2(folder / "mimo2.gguf"),
        "mimo2 of 3": write_mimo2(folder / "mimo2-3.gguf", heads=3),
        "glm4moe": write_glm4moe(folder / "glm4moe.gguf"),
        "qwen35": write_qwen35(folder / "qwen35.gguf"),
        "mimo2's layer": write_mimo2(folder / "mtp-mimo2.gguf", first=2),
        "mimo2's 3 layers": write_mimo2(folder / "mtp-mimo2-3.gguf", heads=3, first=2),
        "glm4moe's layer": write_glm4moe(folder / "mtp-glm4moe.gguf", first=2),
        "qwen35's layer": write_qwen35(folder / "mtp-qwen35.gguf", first=2),
    }


def write_llama(path: Path, seed=1, layers=4, only=None) -> Path:
    """A target with enough layers to tap."""
    net = Net(path, "llama", layers, {}, seed)
    net.tables(only)
    for i in range(layers):
        net.attention(i)
        net.feed_forward(i)
    return net.finish()


def write_gemma3(path: Path, seed=1, layers=2) -> Path:
    """Attention within a sliding window."""
    net = Net(path, "gemma3", layers, {"attention.sliding_window": WINDOW}, seed, scale=0.3)
    net.tables()
    for i in range(layers):
        net.attention(i, norms=True)
        net.feed_forward(i)
        net.layer(i, post_attention_norm=(EMBED,), post_ffw_norm=(EMBED,))
    return net.finish()


def write_lfm2(path: Path, seed=1) -> Path:
    """A hybrid: a short convolution, whose state llama.cpp can keep snapshots of, and a layer of attention."""
    net = Net(path, "lfm2", 2, {"shortconv.l_cache": CONV}, seed, scale=0.3, kv_heads=[0, HEADS])
    net.add("token_embd.weight", VOCAB, EMBED)
    net.ones("token_embd_norm.weight", EMBED)
    convolution = {"conv": (EMBED, CONV), "in_proj": (3 * EMBED, EMBED), "out_proj": (EMBED, EMBED)}
    net.layer(0, "shortconv.", **convolution)
    net.layer(0, attn_norm=(EMBED,))
    net.attention(1, norms=True)
    for i in range(2):
        net.feed_forward(i)
    return net.finish()


def write_jamba(path: Path, seed=1) -> Path:
    """A hybrid of Mamba and attention, whose state can only be copied."""
    keys = {"conv_kernel": CONV, "inner_size": INNER, "state_size": STATE, "time_step_rank": CONV}
    keys = {f"ssm.{name}": value for name, value in keys.items()}
    net = Net(path, "jamba", 2, keys, seed, scale=0.3, kv_heads=[0, HEADS])
    net.tables()
    net.layer(0, attn_norm=(EMBED,), ssm_in=(2 * INNER, EMBED), ssm_conv1d=(INNER, CONV), ssm_dt=(INNER, CONV))
    net.layer(0, ssm_x=(CONV + 2 * STATE, INNER), ssm_out=(EMBED, INNER))
    net.layer(0, ssm_dt_norm=(CONV,), ssm_b_norm=(STATE,), ssm_c_norm=(STATE,))
    net.add("blk.0.ssm_conv1d.bias", INNER)
    net.add("blk.0.ssm_dt.bias", INNER)
    net.put("blk.0.ssm_a", -np.ones((INNER, STATE)))
    net.ones("blk.0.ssm_d", INNER)
    net.attention(1)
    for i in range(2):
        net.feed_forward(i)
    return net.finish()


def write_qwen35(path: Path, seed=1, scale=0.1, first=0) -> Path:
    """A hybrid with an MTP layer: a gated delta net, attention, and the layer that drafts."""
    groups, heads = 2, HEADS
    inner = heads * STATE
    mixed = 2 * groups * STATE + inner
    ssm = {"conv_kernel": CONV, "inner_size": inner, "state_size": STATE, "time_step_rank": heads}
    keys = {f"ssm.{name}": value for name, value in {**ssm, "group_count": groups}.items()}
    keys |= {"nextn_predict_layers": 1, "full_attention_interval": 2}
    net = Net(path, "qwen35", 3, {**keys, "rope.dimension_sections": [SIZE // 2, 0, 0, 0]}, seed, scale)
    net.first = first
    net.tables()
    net.layer(0, attn_norm=(EMBED,), attn_qkv=(mixed, EMBED), attn_gate=(inner, EMBED), ssm_norm=(STATE,))
    net.layer(0, ssm_beta=(heads, EMBED), ssm_alpha=(heads, EMBED), ssm_out=(EMBED, inner))
    net.add("blk.0.ssm_conv1d.weight", mixed, CONV)
    net.add("blk.0.ssm_dt.bias", heads)
    net.put("blk.0.ssm_a", np.full(heads, -0.5))
    for i in (1, 2):
        net.attention(i, queries=2, norms=True)  # each query beside its gate
    for i in range(3):
        net.feed_forward(i, "post_attention_norm")
    net.nextn(2)
    return net.finish()


def write_mimo2(path: Path, seed=1, heads=1, first=0) -> Path:
    """A target with one or several MTP layers; every other of its own layers has a sliding window."""
    layers = 2 + heads
    keys = {"nextn_predict_layers": heads, "expert_feed_forward_length": FEED}
    keys |= {"attention.sliding_window": WINDOW}
    keys |= {"attention.sliding_window_pattern": [True, False, *[True] * heads]}
    net = Net(path, "mimo2", layers, keys, seed)
    net.first = first
    net.tables()
    for i in range(layers):
        net.layer(i, attn_norm=(EMBED,), attn_qkv=(3 * EMBED, EMBED), attn_output=(EMBED, EMBED))
        net.feed_forward(i)
    for i in range(2, layers):
        net.nextn(i)
    return net.finish()


def write_glm4moe(path: Path, seed=1, first=0) -> Path:
    """A target with an MTP layer and experts: a dense layer, then two of two experts and one that is always asked."""
    keys = {"count": 2, "used_count": 1, "shared_count": 1, "feed_forward_length": FEED, "weights_scale": 1.0}
    keys = {f"expert_{name}": value for name, value in keys.items()}
    net = Net(path, "glm4moe", 3, {**keys, "nextn_predict_layers": 1, "leading_dense_block_count": 1}, seed)
    net.first = first
    net.tables()
    for i in range(3):
        net.attention(i)
        if i == 0:
            net.feed_forward(i, "post_attention_norm")
            continue
        wide, narrow = (FEED, EMBED), (EMBED, FEED)
        net.layer(i, post_attention_norm=(EMBED,), ffn_gate_inp=(2, EMBED))
        net.layer(i, ffn_gate_exps=(2, *wide), ffn_up_exps=(2, *wide), ffn_down_exps=(2, *narrow))
        net.layer(i, ffn_gate_shexp=wide, ffn_up_shexp=wide, ffn_down_shexp=narrow)
        net.add(f"blk.{i}.exp_probs_b.bias", 2, scale=net.scale)
    net.nextn(2)
    return net.finish()


def write_gemma4(path: Path, assistant: Path, seed=1) -> None:
    """A target and its assistant, which reads the target's cells, is half as wide, and knows all that it may say."""
    window = {"attention.sliding_window": 512, "attention.sliding_window_pattern": [True, False]}
    window |= {"rope.dimension_count_swa": SIZE, "attention.key_length_swa": SIZE, "attention.value_length_swa": SIZE}
    net = Net(path, "gemma4", 2, {**window, "embedding_length_per_layer_input": 0}, seed)
    net.add("token_embd.weight", VOCAB, EMBED, scale=1.0)
    narrow = np.zeros((VOCAB, NARROW))
    narrow[spoken()] = net.random.normal(0, 1, (len(spoken()), NARROW))
    widen = net.random.normal(0, 0.05, (NARROW, EMBED))
    net.put("output.weight", narrow @ widen)
    net.ones("output_norm.weight", EMBED)
    net.ones("rope_freqs.weight", SIZE // 2)
    for i in range(2):
        net.attention(i, norms=True)
        net.feed_forward(i)
        net.layer(i, post_attention_norm=(EMBED,), post_ffw_norm=(EMBED,))
    net.finish()

    keys = {**window, "embedding_length_out": EMBED, "nextn_predict_layers": 2}
    net = Net(assistant, "gemma4-assistant", 2, keys, seed + 1, embed=NARROW)
    net.put("token_embd.weight", narrow)
    net.put("nextn.pre_projection.weight", net.beside(widen, 0.005))
    net.add("nextn.post_projection.weight", EMBED, NARROW)
    net.ones("output_norm.weight", NARROW)
    net.ones("rope_freqs.weight", SIZE // 2)
    for i in range(2):
        net.layer(i, attn_norm=(NARROW,), attn_q=(EMBED, NARROW), attn_q_norm=(SIZE,), attn_output=(NARROW, EMBED))
        net.layer(i, post_attention_norm=(NARROW,), post_ffw_norm=(NARROW,), layer_output_scale=(1,))
        net.feed_forward(i)
    net.finish()


def write_eagle3(path: Path, seed=7) -> Path:
    """A head for `write_llama`, without tables of its own: it attends to tokens like the last one, and repeats them."""
    net = Net(path, "eagle3", 1, {"target_layers": list(TAPS), "target_hidden_size": EMBED}, seed)
    net.ones("output_norm.weight", EMBED)
    net.add("fc.weight", EMBED, len(TAPS) * EMBED, scale=0.03)
    for name, strength in (("q", 2), ("k", 2), ("v", 1)):
        net.put(f"blk.0.attn_{name}.weight", net.beside(strength * np.eye(EMBED), 0.05))
    net.put("blk.0.attn_output.weight", 3 * np.eye(EMBED))
    net.layer(0, attn_norm=(EMBED,), attn_norm_2=(EMBED,))
    net.feed_forward(0)
    return net.finish()


def write_dflash(path: Path, seed=9, layers=2, markov=False) -> Path:
    """A head for `write_llama`, without tables of its own; `markov`: with what makes it a DSpark."""
    keys = {"block_size": BLOCK, "target_layers": list(TAPS)}
    if markov:
        keys |= {"sample_from_anchor": True, "has_confidence_head": True}
    net = Net(path, "dflash", layers, keys, seed, scale=0.3)
    net.writer.add_mask_token_id(MASK)
    if markov:
        rank = 8
        net.add("markov_w1.weight", VOCAB, rank)
        net.add("markov_w2.weight", VOCAB, rank)
        net.add("conf_proj.weight", 1, EMBED + rank)
    net.add("fc.weight", EMBED, len(TAPS) * EMBED, scale=0.1)
    net.ones("enc.output_norm.weight", EMBED)
    net.ones("output_norm.weight", EMBED)
    for i in range(layers):
        net.attention(i, norms=True)
        net.feed_forward(i)
    return net.finish()
