"""Reads the header of a GGUF file: metadata and tensor list, never the weights.

We have our own reader for three reasons. llama.cpp aborts the process on some malformed headers, so they are checked
first. A header must be readable from the first megabytes of a file. And it must take milliseconds: the reader of the
`gguf` package takes seconds for a vocabulary of 150,000 tokens.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

Buffer = bytes | mmap.mmap
Value = int | float | bool | bytes | list[bytes] | tuple[int | float | bool, ...]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_ELEMENTS = 1 << 24
_MAX_TENSORS = 1 << 16
_MAX_DIMS = 4


class MalformedError(ValueError):
    """The bytes are not a GGUF header; the text says why."""


class TruncatedError(MalformedError):
    """The bytes end inside the header, or before the tensors that it lists."""


class Tensor(NamedTuple):
    """What a header says of a tensor.

    `shape` is in the file's order: the first number is the length of a row. `type` is llama.cpp's number for the kind
    of weights.
    """

    shape: tuple[int, ...]
    type: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata by key, and the tensors by name; of a split model only those of this part.

    The file must have at least `data_end` bytes: up to the first byte of its last tensor. A file without tensors (a
    vocabulary, the first part of a split model) may end with its header.
    """

    metadata: Mapping[str, Value]
    tensors: Mapping[str, Tensor]
    data_end: int

    def text(self, key: str) -> str | None:
        """The string under `key`; None if there is none."""
        value = self.metadata.get(key)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else None

    def number(self, key: str) -> int | None:
        """The whole number under `key`; None if there is none."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def parse(buffer: Buffer) -> GgufHeader:
    """Parse a whole file or its beginning. Raises MalformedError or TruncatedError."""
    cursor = _Cursor(buffer)
    if buffer[:4] != b"GGUF":
        raise MalformedError("it does not start with GGUF")
    cursor.at = 4
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise MalformedError(f"its GGUF version is {version}, supported are 2 and 3")
    num_tensors, num_keys = cursor.count(_MAX_TENSORS), cursor.count(_MAX_ELEMENTS)
    metadata: dict[str, Value] = {}
    for _ in range(num_keys):
        key = cursor.string().decode("utf-8", "replace")
        metadata[key] = cursor.value(cursor.scalar("I"))
    tensors: dict[str, Tensor] = {}
    last = 0
    for _ in range(num_tensors):
        name = cursor.string().decode("utf-8", "replace")
        if name in tensors:
            raise MalformedError(f"it has two tensors {name!r}")
        num_dims = cursor.scalar("I")
        if num_dims > _MAX_DIMS:
            raise MalformedError(f"a tensor has {num_dims} dimensions")
        shape = tuple(cursor.scalar("Q") for _ in range(num_dims))
        tensors[name] = Tensor(shape, cursor.scalar("I"))
        last = max(last, cursor.scalar("Q"))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
        raise MalformedError(f"its alignment is {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    return GgufHeader(metadata, tensors, start + last + 1 if tensors else cursor.at)


class _Cursor:
    """A position in the buffer. No read goes past the end."""

    def __init__(self, buffer: Buffer) -> None:
        self.at = 0
        self._buffer = buffer
        self._end = len(buffer)

    def skip(self, num_bytes: int) -> int:
        """Skip `num_bytes` and return the position before."""
        start = self.at
        if num_bytes > self._end - start:
            raise TruncatedError("it ends inside its header")
        self.at = start + num_bytes
        return start

    def scalar(self, code: str) -> int:
        size = struct.calcsize("<" + code)
        value: int = struct.unpack_from("<" + code, self._buffer, self.skip(size))[0]
        return value

    def count(self, limit: int) -> int:
        value = self.scalar("Q")
        if value > limit:
            raise MalformedError(f"it claims to have {value} elements")
        return value

    def string(self) -> bytes:
        start = self.skip(self.scalar("Q"))
        return self._buffer[start : self.at]

    def value(self, kind: int) -> Value:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array(self.scalar("I"), self.count(_MAX_ELEMENTS))
        return self.scalar(_code(kind))

    def _array(self, kind: int, count: int) -> Value:
        if kind == _STRING:
            return self._strings(count)
        code = f"<{count}{_code(kind)}"
        return struct.unpack_from(code, self._buffer, self.skip(struct.calcsize(code)))

    def _strings(self, count: int) -> list[bytes]:
        # The hot loop: a typical file has 300,000 strings. So there are no method calls in it.
        buffer, end, at = self._buffer, self._end, self.at
        length_of = struct.Struct("<Q").unpack_from
        strings: list[bytes] = []
        for _ in range(count):
            if at + 8 > end:
                raise TruncatedError("it ends inside its header")
            start = at + 8
            at = start + length_of(buffer, at)[0]
            if at > end:
                raise TruncatedError("it ends inside its header")
            strings.append(buffer[start:at])
        self.at = at
        return strings


def _code(kind: int) -> str:
    try:
        return _SCALARS[kind]
    except KeyError:
        raise MalformedError(f"it has a value of unknown type {kind}") from None
