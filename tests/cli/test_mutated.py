"""Damaged model files: each ends as a failure of two lines, soon and in little memory; none ends as a crash."""

import random
import struct
from itertools import cycle

import pytest

from tests.cli.damage import (
    ARRAY,
    F32,
    HUGE,
    I32,
    STRING,
    U32_MAX,
    U64,
    Toy,
    array,
    chosen,
    complaints,
    encoded,
    flipped,
    run,
    value,
)

TOKENS, SCORES, TYPES = (f"tokenizer.ggml.{name}" for name in ("tokens", "scores", "token_type"))
NONSENSE = {
    "llama.context_length": (0, 2**31, U32_MAX),
    "llama.embedding_length": (0, 1, 63, 128, 2**31, U32_MAX),
    "llama.block_count": (0, 2, 3, 513, U32_MAX),
    "llama.feed_forward_length": (0, 127, 129, 2**31, U32_MAX),
    "llama.attention.head_count": (0, 3, 8, 2**31, U32_MAX),
    "llama.attention.head_count_kv": (0, 3, 8, U32_MAX),
    "llama.rope.dimension_count": (0, 15, 32, U32_MAX),
    "llama.attention.layer_norm_rms_epsilon": (-1.0, float("nan")),
    "llama.attention.key_length": (0, 8, U32_MAX),
    "llama.expert_count": (1, 2**16, U32_MAX),
    "llama.nextn_predict_layers": (3, U32_MAX),
    "llama.rope.scaling.type": (b"nonsense",),
    "general.alignment": (0, 1, 7, 24, 2**31 + 8, U32_MAX),
    "general.architecture": (b"", b"nonsense", b"\xff\n", b"clip", b"mamba"),
    "tokenizer.ggml.model": (b"", b"nonsense", b"gpt2"),
    "tokenizer.chat_template": (b"{% for %}", b"{{ nonsense() }}", b"{{ 1 // 0 }}", b"{{ 'x' * 10**15 }}"),
}
"""Values that contradict the tensors, or reason."""
NEEDED = (
    "general.architecture",
    "llama.context_length",
    "llama.embedding_length",
    "llama.block_count",
    "llama.feed_forward_length",
    "llama.attention.head_count",
    "llama.attention.layer_norm_rms_epsilon",
    "tokenizer.ggml.model",
    "tokenizer.chat_template",
    TOKENS,
)


def damaged_beginnings(toy, _):
    for byte in range(4):
        yield f"byte {byte} flipped", flipped(toy.file(), byte, 2 * byte)
    for version in (0, 1, 4, 99, 1 << 16, 3 << 24, U32_MAX):
        yield f"version {version}", toy.file(version=version)
    for off in (-9, -1, 1, 9):
        yield f"{off:+} keys", toy.file(num_keys=len(toy.keys) + off)
        yield f"{off:+} tensors", toy.file(num_tensors=len(toy.tensors) + off)
    for count in (0, 1 << 24, *HUGE):
        yield f"{count} keys", toy.file(num_keys=count)
        yield f"{count} tensors", toy.file(num_tensors=count)


def cut_files(toy, dice):
    whole = toy.file()
    header = len(whole) - len(toy.weights)
    ends = [0, 1, 4, 8, 16, 23, 24, header - 1, header, header + 1, len(whole) - 1]
    ends += dice.sample(range(25, header - 1), 12) + dice.sample(range(header + 2, len(whole) - 1), 7)
    for end in sorted(ends):
        yield f"cut at {end}", whole[:end]


def false_lengths(toy, _):
    changes = cycle([*HUGE, 1, -1])
    for number, (name, content) in enumerate(toy.keys):
        length = false_length(name[8:], next(changes))
        yield (
            f"name of key {number} with length {length}",
            toy.file(keys=[*toy.keys[:number], (encoded(name[8:], length), content), *toy.keys[number + 1 :]]),
        )
        if content[0] == STRING:
            length = false_length(content[12:], next(changes))
            yield (
                f"value of key {number} with length {length}",
                toy.having({name[8:].decode(): content[:4] + encoded(content[12:], length)}),
            )
    for number, (name, *rest) in enumerate(toy.tensors):
        length = false_length(name[8:], next(changes))
        yield f"name of tensor {number} with length {length}", toy.with_tensor(number, encoded(name[8:], length), *rest)
    for number in (0, 100, len(toy.tokens) - 1):
        length = false_length(toy.tokens[number], next(changes))
        content = b"".join(encoded(token, length if i == number else None) for i, token in enumerate(toy.tokens))
        yield f"token {number} with length {length}", toy.having({TOKENS: toy[TOKENS][:16] + content})


def false_length(text, change):
    return change if change in HUGE else len(text) + change


def false_types(toy, _):
    kinds = cycle((13, 255, U32_MAX))
    for name, content in toy.keys:
        kind = next(kinds)
        yield f"{name[8:]} of type {kind}", toy.having({name[8:].decode(): struct.pack("<I", kind) + content[4:]})
    for name in (TOKENS, SCORES, TYPES):
        for kind in (ARRAY, next(kinds)):
            content = toy[name][:4] + struct.pack("<I", kind) + toy[name][8:]
            yield f"{name} of elements of type {kind}", toy.having({name: content})
        yield f"{name} of numbers of another type", toy.having({name: array(U64, [2] * len(toy.tokens))})
        yield f"{name} a number", toy.having({name: value(2)})
    for name in NEEDED:
        for other in (value(2, I32), array(F32, [2.0])):
            yield f"{name} of type {other[0]}", toy.having({name: other})


def arrays_of_other_lengths(toy, _):
    huge = cycle(HUGE)
    for name in (TOKENS, SCORES, TYPES):
        for count in (len(toy.tokens) - 1, len(toy.tokens) + 1, 1 << 24, next(huge)):
            content = toy[name][:8] + struct.pack("<Q", count) + toy[name][16:]
            yield f"{name} said to be {count} long", toy.having({name: content})
    for count in (0, 1, len(toy.tokens) - 1):
        yield f"{count} tokens", toy.having({TOKENS: array(STRING, toy.tokens[:count])})
        yield f"{count} scores", toy.having({SCORES: array(F32, [0.0] * count)})
        yield f"{count} types", toy.having({TYPES: array(I32, [1] * count)})
    yield "one token too many", toy.having({TOKENS: array(STRING, [*toy.tokens, b"more"])})
    yield "a token twice", toy.having({TOKENS: array(STRING, [*toy.tokens[:-1], toy.tokens[-2]])})
    for byte in (0, 10, 255):
        tokens = [b"other" if token == b"<0x%02X>" % byte else token for token in toy.tokens]
        yield f"no token for byte {byte}", toy.having({TOKENS: array(STRING, tokens)})


def nonsense(toy, _):
    for name, contents in NONSENSE.items():
        for content in contents:
            yield f"{name} is {content}", toy.having({name: value(content)})
    for kind in (b"none", b"no_vocab"):
        changes = {"tokenizer.ggml.model": value(kind), "llama.vocab_size": value(2**26)}
        yield f"{kind}, and many tokens", toy.having(changes)
    for architecture in ("bert", "olmo2", "phimoe"):
        renamed = {name[8:].decode(): content for name, content in toy.keys}
        renamed = {name.replace("llama.", f"{architecture}."): content for name, content in renamed.items()}
        renamed["general.architecture"] = value(architecture.encode())
        for count in (0, 4):
            renamed[f"{architecture}.attention.head_count"] = value(count)
            keys = [(encoded(name.encode()), content) for name, content in renamed.items()]
            yield f"{architecture} with {count} heads", toy.file(keys=keys)


def missing_and_double_parts(toy, _):
    for name in NEEDED:
        yield f"no {name}", toy.having({name: None})
    for name, content in toy.keys[:3]:
        yield f"{name[8:]} twice", toy.file(keys=[*toy.keys, (name, content)])
    yield "no keys", toy.file(keys=[])
    yield "no tensors", toy.file(tensors=[])
    for number in range(len(toy.tensors)):
        yield f"no tensor {number}", toy.file(tensors=toy.tensors[:number] + toy.tensors[number + 1 :])


def false_tensors(toy, dice):
    for number, (name, dims, kind, offset) in enumerate(toy.tensors):
        dims_first = dice.choice([0, dims[0] + 1, 2**62, 2**63])
        choices = (
            (dice.choice([encoded(b""), encoded(b"x" * 64), toy.tensors[number - 1][0]]), dims, kind, offset),
            (name, dice.choice([[], [dims_first, *dims[1:]], [2**64 - 1] * 4, [1] * 5, [1] * 300]), kind, offset),
            (name, dims, dice.choice([4, 12, 31, 1000, 2**31, U32_MAX]), offset),
            (name, dims, kind, dice.choice([offset + 1, offset + 32, 2**40, 2**63, 2**64 - 32])),
        )
        changed = choices[number % len(choices)]
        yield f"tensor {number} as {changed}", toy.with_tensor(number, *changed)


KINDS = (
    damaged_beginnings,
    cut_files,
    false_lengths,
    false_types,
    arrays_of_other_lengths,
    nonsense,
    missing_and_double_parts,
    false_tensors,
)
"""What makes files that are certainly invalid."""


def perhaps_valid(toy, dice):
    """What may pass unnoticed, or does no harm."""
    whole = toy.file()
    for _ in range(6):
        byte = dice.randrange(24, len(whole) - len(toy.weights))
        yield f"byte {byte} flipped", flipped(whole, byte, dice.randrange(8))
    for name in ("bos", "eos"):
        for token in (len(toy.tokens), U32_MAX):
            yield f"{name} is {token}", toy.having({f"tokenizer.ggml.{name}_token_id": value(token)})
        yield f"{name} is -1", toy.having({f"tokenizer.ggml.{name}_token_id": value(-1, I32)})
    for name in (SCORES, TYPES, "tokenizer.ggml.bos_token_id", "llama.attention.head_count_kv"):
        yield f"no {name}", toy.having({name: None})
    for token in (b"", b"\xff", b"a\0b", b"x" * 1_000_000):
        yield f"a token {token[:3]}", toy.having({TOKENS: array(STRING, [*toy.tokens[:-1], token])})
    yield "types of no meaning", toy.having({TYPES: array(I32, [-(2**31)] * len(toy.tokens))})
    yield "scores of no meaning", toy.having({SCORES: array(F32, [float("nan")] * len(toy.tokens))})
    yield "a template that is no text", toy.having({"tokenizer.chat_template": value(b"\xff{{ messages }}")})
    yield "a long context", toy.having({"llama.context_length": value(2**31 - 1)})
    for number in (float("nan"), 1e38, 0.0):
        yield f"weights {number}", whole[: -len(toy.weights)] + struct.pack("<f", number) * (len(toy.weights) // 4)
    yield "version 2", toy.file(version=2)
    yield "more at its end", whole + bytes(1000)


def plainly(path):
    return ["run", "-m", path, "--speculate", "off", "-t", "1", "-n", "2", "hi"]


@pytest.fixture(scope="module")
def toy(toy_models):
    return Toy.of_file(toy_models["target"])


def test_the_parts_make_the_file(toy, toy_models, tmp_path):
    assert toy.file() == toy_models["target"].read_bytes()
    assert run(*plainly(toy_models["target"]))[0].returncode == 0


FEW_OR_ALL = pytest.mark.parametrize("most", [3, pytest.param(None, marks=pytest.mark.sweep)])


@FEW_OR_ALL
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_failures_and_nothing_worse(toy, tmp_path, kind, most):
    mutants = chosen(kind(toy, random.Random(1)), most)
    assert len({data for _, data in mutants}) == len(mutants) >= 3
    found = complaints(mutants, tmp_path, plainly)
    assert not found, "\n".join(found)


@FEW_OR_ALL
def test_files_that_may_still_be_valid_work_or_fail_properly(toy, tmp_path, most):
    found = complaints(chosen(perhaps_valid(toy, random.Random(2)), most), tmp_path, plainly, answer=lambda _: True)
    assert not found, "\n".join(found)
