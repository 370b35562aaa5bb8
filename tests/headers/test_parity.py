from dataclasses import replace

import pytest

from specgguf.headers.gguf import GgufHeader, MalformedError
from specgguf.headers.parity import MAX_PADDING, Parity, Tokenizer, compare, read_tokenizer

TOKENIZER = Tokenizer(
    model="gpt2",
    pre="qwen2",
    tokens=[b"a", b"b", b"ab", b"<end>"],
    types=(1, 1, 1, 3),
    merges=[b"a b"],
    special={"bos": 3, "eos": 3},
    adds={"bos": False, "eos": None},
)
PADDED = [*TOKENIZER.tokens, *(b"[PAD%d]" % i for i in range(MAX_PADDING))]


def test_the_same():
    report = compare(TOKENIZER, replace(TOKENIZER, tokens=list(TOKENIZER.tokens)))
    assert (report.verdict, report.num_shared) == (Parity.IDENTICAL, 4)
    assert (report.reasons, report.differences) == ([], [])


@pytest.mark.parametrize(
    ("draft", "first"),
    [
        (replace(TOKENIZER, tokens=PADDED), (4, "(no such id)", "[PAD0]")),
        (replace(TOKENIZER, types=(1, 1, 1, 4)), None),
        (replace(TOKENIZER, pre="default"), None),
        (replace(TOKENIZER, merges=[]), None),
        (replace(TOKENIZER, special={**TOKENIZER.special, "padding": 0}), None),
        (replace(TOKENIZER, special={"bos": 0, "eos": 3}), None),  # never added, so it cannot matter
        (replace(TOKENIZER, adds={"bos": None, "eos": None}), None),
        (replace(TOKENIZER, special={"bos": 3, "eos": 2}), None),  # the target's ends the text
    ],
)
def test_compatible(draft, first):
    report = compare(TOKENIZER, draft)
    assert report.verdict is Parity.COMPATIBLE
    assert report.reasons
    assert report.num_shared == 4
    assert report.differences[:1] == ([first] if first else [])
    assert len(report.differences) <= 5
    assert compare(draft, TOKENIZER).verdict is Parity.COMPATIBLE


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        (replace(TOKENIZER, model="llama"), "tokenizer type 'gpt2' in the target, 'llama' in the draft"),
        (replace(TOKENIZER, tokens=[b"a", b"c", b"ab", b"<end>"]), "different text at id 1"),
        (replace(TOKENIZER, tokens=[*PADDED, b"[one too many]"]), "number of ids 4 in the target"),
        (replace(TOKENIZER, adds={"bos": True, "eos": None}), "only the draft adds BOS"),
    ],
)
def test_incompatible(draft, reason):
    for report in (compare(TOKENIZER, draft), compare(draft, TOKENIZER)):
        assert report.verdict is Parity.INCOMPATIBLE
        assert reason.split()[0] in " ".join(report.reasons)
    assert reason in " ".join(compare(TOKENIZER, draft).reasons)


def test_the_first_difference_is_named_with_both_texts():
    report = compare(TOKENIZER, replace(TOKENIZER, tokens=[b"a", b"c", b"x", b"<end>"]))
    assert report.differences == [(1, "b", "c"), (2, "ab", "x")]


def test_the_fingerprint_covers_every_field():
    variants = [
        TOKENIZER,
        replace(TOKENIZER, model="llama"),
        replace(TOKENIZER, pre=""),
        replace(TOKENIZER, tokens=[b"a", b"b", b"a", b"b<end>"]),
        replace(TOKENIZER, types=(1, 1, 3, 1)),
        replace(TOKENIZER, merges=[]),
        replace(TOKENIZER, special={"bos": 3}),
        replace(TOKENIZER, adds={"bos": True, "eos": None}),
    ]
    assert len({tokenizer.fingerprint for tokenizer in variants}) == len(variants)
    assert replace(TOKENIZER).fingerprint == TOKENIZER.fingerprint
    assert len(TOKENIZER.fingerprint) == 16


def test_reading_a_header():
    metadata = {
        "tokenizer.ggml.model": b"gpt2",
        "tokenizer.ggml.pre": b"qwen2",
        "tokenizer.ggml.tokens": [b"a", b"b", b"ab", b"<end>"],
        "tokenizer.ggml.token_type": (1, 1, 1, 3),
        "tokenizer.ggml.merges": [b"a b"],
        "tokenizer.ggml.bos_token_id": 3,
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.ggml.add_bos_token": False,
    }
    assert read_tokenizer(GgufHeader(metadata, {}, 1)) == TOKENIZER
    with pytest.raises(MalformedError, match="no token for the byte 0x00"):
        read_tokenizer(GgufHeader({**metadata, "tokenizer.ggml.model": b"llama"}, {}, 1))
    for without in ({}, {**metadata, "tokenizer.ggml.model": b"none"}):
        with pytest.raises(MalformedError, match="no vocabulary"):
            read_tokenizer(GgufHeader(without, {}, 1))
