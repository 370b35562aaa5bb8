"""Which heads fit which targets, and what is said of those that do not."""

from pathlib import Path

import numpy as np
import pytest

from specgguf.errors import ModelError
from specgguf.headers.fitting import check_head
from specgguf.headers.heads import (
    DraftKind,
    block_size,
    kind_of,
    mask_token,
    num_nextn_layers,
    tapped_layers,
)
from specgguf.headers.parity import Parity
from specgguf.models.header import ModelHeader
from tests.headers import heads
from tests.headers.heads import NUM_TOKENS, TOKENS, WIDTH

REDUCED = {"d2t": ((100,), np.int64), "output.weight": (100, WIDTH)}


def judged(target, head):
    report = check_head(target, head)
    assert (report.verdict is Parity.INCOMPATIBLE) == bool(report.reasons)
    return report.reasons


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (heads.eagle3, DraftKind.EAGLE3),
        (heads.dflash, DraftKind.DFLASH),
        (heads.dspark, DraftKind.DSPARK),
        (heads.assistant, DraftKind.ASSISTANT),
        (heads.mtp, DraftKind.MTP),
        (heads.target, DraftKind.MODEL),
    ],
)
def test_kinds(tmp_path, head, kind):
    assert kind_of(head(tmp_path)) is kind
    assert kind.label


def test_what_a_header_says_of_a_head(tmp_path):
    head = heads.dflash(tmp_path)
    assert (tapped_layers(head), block_size(head), mask_token(head)) == ((1, 2, 3), 5, 7)
    assert tapped_layers(heads.dflash(tmp_path, target_layers=[True, False])) == ()
    plain = heads.target(tmp_path)
    assert (tapped_layers(plain), block_size(plain), mask_token(plain), num_nextn_layers(plain)) == ((), 0, None, 0)


def test_mtp_layers_of_the_target_itself(tmp_path):
    target = heads.target(tmp_path, "qwen35", nextn=1)
    assert num_nextn_layers(target) == 1
    assert kind_of(target) is DraftKind.MODEL  # for another target
    assert kind_of(target, target) is DraftKind.MTP
    assert judged(target, target) == []


@pytest.mark.parametrize("settings", [{}, {"tokens": None, "vocab_size": NUM_TOKENS}, {"tensors": REDUCED}])
@pytest.mark.parametrize("head", [heads.eagle3, heads.dflash])
def test_a_head_with_the_targets_vocabulary_or_a_part_of_it(tmp_path, head, settings):
    report = check_head(heads.target(tmp_path), head(tmp_path, **settings))
    assert (report.verdict, report.reasons, report.num_shared) == (Parity.IDENTICAL, [], NUM_TOKENS)


def test_other_heads_that_fit(tmp_path):
    assert judged(heads.target(tmp_path), heads.dspark(tmp_path)) == []
    assert judged(heads.target(tmp_path, "gemma4"), heads.assistant(tmp_path)) == []
    assert judged(heads.target(tmp_path, "qwen35", nextn=1), heads.mtp(tmp_path)) == []
    several = heads.target(tmp_path, "mimo2", nextn=2, extra=["attn_qkv"])
    assert judged(several, several) == []
    own = {"token_embd.weight": (NUM_TOKENS, 32), "output.weight": (NUM_TOKENS, 32)}
    assert judged(heads.target(tmp_path), heads.eagle3(tmp_path, width=32, tensors=own)) == []
    for architecture in ("mimo2", "nemotron_h", "deepseek4"):
        assert judged(heads.target(tmp_path, architecture), heads.eagle3(tmp_path, target_layers=[1, 2, 4])) == []
    with_nextn = heads.target(tmp_path, "mimo2", layers=5, nextn=1)
    assert judged(with_nextn, heads.dflash(tmp_path, target_layers=[1, 2, 4])) == []
    of_deepseek4 = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm")
    missing = [f"blk.{block}.{name}.weight" for block in range(2) for name in of_deepseek4]
    hyper = {"hyper_connection.count": 4}
    assert judged(heads.target(tmp_path, "deepseek4"), heads.dspark(tmp_path, missing=missing, **hyper)) == []


@pytest.mark.parametrize(
    ("architecture", "settings", "reason"),
    [
        (
            "qwen35",
            {"nextn": 1, "missing": ["blk.3.nextn.eh_proj.weight"]},
            "tensor blk.3.nextn.eh_proj.weight is missing",
        ),
        ("qwen35", {"nextn": 1, "missing": ["blk.3.nextn.enorm.weight"]}, "tensor blk.3.nextn.enorm.weight is missing"),
        ("qwen35", {"nextn": 1, "missing": ["blk.3.nextn.hnorm.weight"]}, "tensor blk.3.nextn.hnorm.weight is missing"),
        (
            "qwen35",
            {"nextn": 1, "missing": ["output_norm.weight"]},
            "tensor blk.3.nextn.shared_head_norm.weight is missing",
        ),
        ("mimo2", {"nextn": 1}, "tensor blk.3.attn_qkv.weight is missing"),
        ("nemotron_h_moe", {"nextn": 1}, "tensor blk.3.nextn.shared_head_norm.weight is missing"),
        ("glm4moe", {"nextn": 1}, "tensor blk.3.ffn_gate_inp.weight is missing"),
        ("qwen35", {"nextn": 2}, "it has 2 MTP layers, and llama.cpp runs only one of the architecture qwen35"),
        ("qwen35", {"nextn": 4}, "4 of its 4 layers are MTP layers"),
        ("glm4", {"nextn": 1}, "llama.cpp cannot run MTP layers of the architecture glm4"),
        ("glm5-next", {"nextn": 1}, "llama.cpp cannot run MTP layers of the architecture glm5-next"),
        ("qwen35", {"nextn": 1, "parts": 2}, "cannot be checked, because it is split"),
    ],
)
def test_mtp_layers_that_cannot_be_used(tmp_path, architecture, settings, reason):
    target = heads.target(tmp_path, architecture, **settings)
    assert reason in "; ".join(judged(target, target))


def test_only_the_first_incomplete_layer_is_named(tmp_path):
    damaged = heads.target(tmp_path, "mimo2", nextn=1, block_count=4_000_000_000, nextn_predict_layers=3_000_000_000)
    assert all("blk.1000000000." in reason for reason in judged(damaged, damaged))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"architecture": "qwen35moe"}, "architecture qwen35 in the target, qwen35moe in the head"),
        ({"embedding_length": 32}, "width 64 in the target, 32 in the head"),
        ({"missing": ["token_embd.weight"]}, "its tensor token_embd.weight is missing"),
        ({"missing": ["blk.3.nextn.eh_proj.weight"]}, "its tensor blk.3.nextn.eh_proj.weight is missing"),
        ({"tokens": TOKENS[:-1]}, "number of ids 300 in the target, 299 in the head"),
        ({"tokens": [*TOKENS[:-1], "other"]}, "different text at id 299"),
    ],
)
def test_an_mtp_file_that_does_not_fit(tmp_path, settings, reason):
    target = heads.target(tmp_path, "qwen35", nextn=1)
    head = heads.mtp(tmp_path, **settings)
    assert kind_of(head, target) is DraftKind.MTP
    assert reason in judged(target, head)


TAPS = [
    ({"target_layers": [1, 2, 9]}, "it reads layer 9 of the target, and llama.cpp hands out layers 0 to 3"),
    ({"target_layers": [1, 2, 4]}, "it reads layer 4 of the target, and llama.cpp hands out layers 0 to 3"),
    ({"target_layers": [-1, 2, 3]}, "it reads layer -1 of the target, and llama.cpp hands out layers 0 to 3"),
]
COMMON = [
    *TAPS,
    ({"tokens": None}, "number of ids 300 in the target, 0 in the head"),
    ({"tokens": None, "vocab_size": 1 << 31}, "number of ids 300 in the target, 2147483648 in the head"),
    ({"tokens": TOKENS[1:]}, "different text at id 0"),
    ({"tokens": [*TOKENS, "[PAD]"]}, "number of ids 300 in the target, 301 in the head"),
    ({"tensors": {"fc.weight": (WIDTH, WIDTH)}}, "its tensor fc.weight has the shape [64, 64] and not [192, 64]"),
    ({"missing": ["fc.weight"]}, "its tensor fc.weight is missing"),
    ({"missing": ["blk.0.attn_q.weight"]}, "its tensor blk.0.attn_q.weight is missing"),
    ({"attention.key_length": 16, "attention.value_length": 8}, "its keys have the length 16, its values 8"),
    ({"tensors": {"d2t": ((100,), np.int64)}}, "it has a table d2t, but no output.weight of its own"),
    ({"tensors": {**REDUCED, "d2t": ((100,), np.int32)}}, "its table d2t is not one row of 64-bit integers"),
    ({"tensors": {**REDUCED, "d2t": ((2, 100), np.int64)}}, "its table d2t is not one row of 64-bit integers"),
    (
        {"tensors": {"output.weight": (100, WIDTH)}},
        "its tensor output.weight has the shape [64, 100] and not [64, 300]",
    ),
    (
        {"tensors": {"token_embd.weight": (100, WIDTH)}},
        "its tensor token_embd.weight has the shape [64, 100] and not [64, 300]",
    ),
]


@pytest.mark.parametrize("head", [heads.eagle3, heads.dflash, heads.dspark])
@pytest.mark.parametrize(("settings", "reason"), COMMON)
def test_a_head_that_fuses_layers_and_does_not_fit(tmp_path, head, settings, reason):
    assert reason in judged(heads.target(tmp_path), head(tmp_path, **settings))


@pytest.mark.parametrize("head", [heads.eagle3, heads.dflash, heads.dspark])
@pytest.mark.parametrize("architecture", ["qwen2", "glm4moe"])
def test_a_target_whose_layers_cannot_be_read(tmp_path, head, architecture):
    reason = f"llama.cpp does not hand out those of the architecture {architecture}"
    assert reason in "; ".join(judged(heads.target(tmp_path, architecture), head(tmp_path)))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"target_layers": [1, 2]}, "it reads 2 layers of the target, and llama.cpp wants 3 for EAGLE-3"),
        ({"target_layers": None}, "it reads 0 layers of the target, and llama.cpp wants 3 for EAGLE-3"),
        ({"target_hidden_size": 128}, "it is for a target of width 128, and this one has 64"),
        ({"block_count": 2}, "it has 2 layers, and llama.cpp wants one for EAGLE-3"),
        ({"width": 32}, "its width is 32, so it needs token_embd.weight and output.weight of its own"),
        ({"missing": ["blk.0.attn_norm_2.weight"]}, "its tensor blk.0.attn_norm_2.weight is missing"),
    ],
)
def test_an_eagle3_head_that_does_not_fit(tmp_path, settings, reason):
    assert reason in judged(heads.target(tmp_path), heads.eagle3(tmp_path, **settings))


@pytest.mark.parametrize("head", [heads.dflash, heads.dspark])
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mask": None}, "it has no mask token"),
        ({"mask": NUM_TOKENS}, "its mask token is 300, and the target has 300 ids"),
        ({"target_layers": None}, "it does not say which layers of the target it reads"),
        ({"embedding_length": 32}, "width 64 in the target, 32 in the head"),
        ({"missing": ["enc.output_norm.weight"]}, "its tensor enc.output_norm.weight is missing"),
        ({"missing": ["blk.1.attn_k_norm.weight"]}, "its tensor blk.1.attn_k_norm.weight is missing"),
    ],
)
def test_a_block_head_that_does_not_fit(tmp_path, head, settings, reason):
    assert reason in judged(heads.target(tmp_path), head(tmp_path, **settings))


@pytest.mark.parametrize(
    ("head", "settings", "reason"),
    [
        (heads.dflash, {"block_size": 1}, "its block size is 1, which leaves no room for draft tokens"),
        (heads.dflash, {"selector_top_k": 4}, "it is a DFlash2 head, which specgguf cannot use yet"),
        (heads.dspark, {"block_size": None}, "it does not say its block size"),
        (heads.dspark, {"missing": ["markov_w1.weight"]}, "its tensor markov_w1.weight is missing"),
        (heads.dspark, {"missing": ["markov_w2.weight"]}, "its tensor markov_w2.weight is missing"),
        (
            heads.dspark,
            {"tensors": {"markov_w1.weight": (100, 8)}},
            "its tensor markov_w1.weight has the shape [8, 100] and not [8, 300]",
        ),
        (
            heads.dspark,
            {"tensors": REDUCED},
            "its tensor markov_w2.weight has the shape [8, 300] and not [8, 100]",
        ),
    ],
)
def test_what_only_dflash_or_only_dspark_must_have(tmp_path, head, settings, reason):
    assert reason in judged(heads.target(tmp_path), head(tmp_path, **settings))


@pytest.mark.parametrize(
    ("target", "settings", "reason"),
    [
        ({"architecture": "gemma3"}, {}, "it is for Gemma 4, and the target's architecture is gemma3"),
        ({}, {"embedding_length_out": 128}, "width 64 in the target, 128 in the head"),
        ({}, {"attention.key_length": 16}, "attention.key_length 0 in the target, 16 in the head"),
        (
            {"attention.key_length_swa": 32},
            {"attention.key_length_swa": 16},
            "attention.key_length_swa 32 in the target, 16 in the head",
        ),
        ({}, {"nextn_predict_layers": 1}, "only 1 of its 2 layers are MTP layers"),
        ({}, {"missing": ["nextn.pre_projection.weight"]}, "its tensor nextn.pre_projection.weight is missing"),
        ({}, {"missing": ["blk.1.attn_q.weight"]}, "its tensor blk.1.attn_q.weight is missing"),
        (
            {},
            {"tensors": {"token_embd.weight": (9, 32)}},
            "its tensor token_embd.weight has the shape [32, 9] and not [32, 300]",
        ),
        ({}, {"tokens": TOKENS[:-1]}, "number of ids 300 in the target, 299 in the head"),
    ],
)
def test_an_assistant_that_does_not_fit(tmp_path, target, settings, reason):
    found = heads.target(tmp_path, **{"architecture": "gemma4", **target})
    assert reason in judged(found, heads.assistant(tmp_path, **settings))


def test_what_a_head_says_of_its_special_tokens_does_not_matter(tmp_path):
    target = heads.target(tmp_path)
    ended = {**target.metadata, "tokenizer.ggml.eos_token_id": 2}
    other = {**heads.eagle3(tmp_path).metadata, "tokenizer.ggml.eos_token_id": 3}
    head = heads.eagle3(tmp_path)
    assert judged(type(target)(ended, target.tensors, 1), type(head)(other, head.tensors, 1)) == []


def test_a_model_of_its_own_is_judged_by_its_tokenizer(tmp_path):
    target = heads.target(tmp_path)
    assert check_head(target, heads.target(tmp_path, "qwen2")).verdict is Parity.IDENTICAL
    report = check_head(target, heads.target(tmp_path, tokens=TOKENS[1:]))
    assert report.verdict is Parity.INCOMPATIBLE
    assert report.differences[0] == (0, "token 0", "token 1")


@pytest.mark.parametrize("head", [heads.eagle3, heads.dflash, heads.dspark, heads.assistant, heads.mtp])
def test_a_head_is_no_target(tmp_path, head):
    for tokens in (TOKENS, None):
        head(tmp_path, tokens=tokens)
        data = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns).read_bytes()
        with pytest.raises(
            ModelError, match=r"is a draft head \(.+\): no model that generates text by itself"
        ) as raised:
            ModelHeader(Path("x.gguf"), "target", data)
        assert "--draft" in raised.value.hint
        header = ModelHeader(Path("x.gguf"), "draft", data)
        assert header.kind is not DraftKind.MODEL
        assert len(header.tokenizer.tokens) == (NUM_TOKENS if tokens else 0)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_model_without_a_vocabulary_is_refused_as_before(tmp_path, role):
    heads.target(tmp_path, tokens=None)
    with pytest.raises(ModelError, match="it has no vocabulary"):
        ModelHeader(Path("x.gguf"), role, next(tmp_path.iterdir()).read_bytes())


@pytest.mark.parametrize("settings", [{"nextn": 1}, {"nextn": 1, "parts": 2, "missing": ["blk.0.attn_norm.weight"]}])
def test_a_model_with_mtp_layers_is_a_target(tmp_path, settings):
    heads.target(tmp_path, "qwen35", **settings)
    header = ModelHeader(Path("x.gguf"), "target", next(tmp_path.iterdir()).read_bytes())
    assert header.kind is DraftKind.MODEL
    assert num_nextn_layers(header.gguf) == 1
