import contextlib
import random
import struct

import pytest

from specgguf.headers import gguf


def text(value):
    return struct.pack("<Q", len(value)) + value


def key(name, kind, payload):
    return text(name) + struct.pack("<I", kind) + payload


def array(kind, count, payload):
    return struct.pack("<IQ", kind, count) + payload


KEYS = [
    key(b"general.name", 8, text(b"toy")),
    key(b"a.byte", 0, b"\x07"),
    key(b"a.flag", 7, b"\x01"),
    key(b"a.float", 6, struct.pack("<f", 0.5)),
    key(b"a.big", 10, struct.pack("<Q", 1 << 40)),
    key(b"tokenizer.ggml.tokens", 9, array(8, 3, text(b"a") + text(b"") + text("é".encode()))),
    key(b"tokenizer.ggml.token_type", 9, array(5, 3, struct.pack("<3i", 1, 2, 3))),
]
TENSOR = text(b"w") + struct.pack("<I2QIQ", 2, 4, 4, 0, 64)


def header(keys=KEYS, tensors=(TENSOR,), version=3):
    return b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)


def test_a_header():
    parsed = gguf.parse(header())
    assert parsed.text("general.name") == "toy"
    assert parsed.text("a.byte") is None
    assert parsed.metadata["a.byte"] == 7
    assert parsed.metadata["a.flag"] is True
    assert parsed.metadata["a.float"] == 0.5
    assert parsed.metadata["a.big"] == 1 << 40
    assert parsed.metadata["tokenizer.ggml.tokens"] == [b"a", b"", "é".encode()]
    assert parsed.metadata["tokenizer.ggml.token_type"] == (1, 2, 3)
    assert parsed.tensors == {"w": gguf.Tensor((4, 4), 0)}
    assert (parsed.number("a.byte"), parsed.number("a.flag"), parsed.number("a.float")) == (7, None, None)
    assert parsed.data_end == -(-len(header()) // 32) * 32 + 64 + 1


def test_without_tensors_nothing_follows_the_header():
    assert gguf.parse(header(tensors=())).data_end == len(header(tensors=()))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"GGML" + header()[4:], "does not start with GGUF"),
        (header(version=9), "version is 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "claims to have"),
        (header([key(b"k", 99, b"")]), "unknown type 99"),
        (header([key(b"k", 9, array(9, 1, b""))]), "unknown type 9"),
        (header([key(b"general.alignment", 4, struct.pack("<I", 0))]), "alignment"),
        (header(tensors=[text(b"w") + struct.pack("<I", 77)]), "77 dimensions"),
        (header(tensors=[TENSOR, TENSOR]), "two tensors 'w'"),
        (b"GGUF" + struct.pack("<IQQ", 3, (1 << 16) + 1, 0), "claims to have 65537"),
    ],
)
def test_what_is_no_header(data, problem):
    with pytest.raises(gguf.MalformedError, match=problem):
        gguf.parse(data)


def test_every_cut_is_noticed():
    whole = header()
    for end in range(len(whole)):
        with pytest.raises(gguf.MalformedError):
            gguf.parse(whole[:end])


def test_damaged_bytes_never_raise_anything_else():
    whole, dice = header(), random.Random(1)
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(len(data))] = dice.choice([0, 1, 127, 128, 255, dice.randrange(256)])
        with contextlib.suppress(gguf.MalformedError):
            gguf.parse(bytes(data))
