"""The three standard streams, as every part of the program may rely on them."""

import errno
import io
import os
import select
import sys
from typing import Any, BinaryIO, TextIO, cast

from specgguf.errors import SpecggufError

_PIECE = 1 << 15
"""Bytes that are handed to a buffer at a time, which holds them all."""


class ReaderGoneError(Exception):
    """Nobody reads stdout any more: the work is done."""


def prepare() -> None:
    """Take the place of the streams that Python has opened.

    stdout and stderr are UTF-8 whatever the locale says, and every byte arrives, however slow the reader is. What
    cannot be written to stdout raises ReaderGoneError or SpecggufError; what cannot be written to stderr is dropped.
    stdin is read to its end, also where it does not wait for what comes; it is None where it cannot be read.
    """
    if os.name != "nt":
        _occupy()
    sys.stdout = _writer(_Output(sys.stdout))
    sys.stderr = _writer(_Messages(sys.stderr))
    if sys.stdin is not None and not sys.stdin.isatty():
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Input(sys.stdin))) if _is_readable(sys.stdin) else None


class _Stream(io.RawIOBase):
    """One of the streams, or none where that is closed."""

    def __init__(self, stream: TextIO | None) -> None:
        buffer: Any = stream.buffer if stream else None
        self._raw: io.RawIOBase | None = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED there is no buffer

    def fileno(self) -> int:
        if self._raw is None:
            raise io.UnsupportedOperation("it is closed")
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw is not None and self._raw.isatty()


class _Input(_Stream):
    """Waits for what comes; raises SpecggufError where nothing can be read."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (as io has it)
        assert self._raw is not None
        try:
            while (num_bytes := cast("int | None", self._raw.readinto(buffer))) is None:
                select.select([self.fileno()], [], [])
        except OSError as error:
            raise SpecggufError(f"cannot read stdin: {error.strerror}", "check what stdin is redirected from") from None
        return num_bytes


class _Output(_Stream):
    """Writes at once. What Ctrl-C interrupts is written with the next piece, and dropped at a second Ctrl-C."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__(stream)
        # Only the library's own buffer knows how much was written when a signal comes.
        self._buffer: BinaryIO | None = io.BufferedWriter(self._raw, 2 * _PIECE) if self._raw else None
        self._error = None if self._raw else OSError(errno.EBADF, "it is closed")
        self._is_interrupted = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 (as io has it)
        for start in range(0, len(data), _PIECE):
            self.flush()
            if self._error:
                self._fail(self._error)
            elif self._buffer:
                self._buffer.write(data[start : start + _PIECE])
        self.flush()
        return len(data)

    def flush(self) -> None:
        try:
            while self._buffer and not self._has_flushed(self._buffer):
                select.select([], [self.fileno()], [])
        except OSError as error:
            self._error = error
            self._drop()
            self._fail(error)
        except BaseException:
            if self._is_interrupted:
                self._drop()
            self._is_interrupted = True
            raise
        self._is_interrupted = False

    def _has_flushed(self, buffer: BinaryIO) -> bool:
        try:
            buffer.flush()
        except BlockingIOError:  # the stream does not wait by itself, and there is no room
            return False
        return True

    def _drop(self) -> None:
        """Let what is left, which Python writes at its end, go nowhere."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)

    def _fail(self, error: OSError) -> None:
        if isinstance(error, ConnectionError):
            raise ReaderGoneError from None
        raise SpecggufError(
            f"cannot write to stdout: {error.strerror}", "check what stdout is redirected to; /dev/null takes all"
        ) from None


class _Messages(_Output):
    """That nobody can read them is no reason to stop."""

    def _fail(self, error: OSError) -> None:
        pass


def _writer(raw: _Output) -> io.TextIOWrapper:
    # It only ever writes whole pieces to `raw`, which is all that it needs of a buffer.
    buffer = cast("BinaryIO", raw)
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True)


def _is_readable(stream: TextIO) -> bool:
    """Under nohup it is not."""
    try:
        os.read(stream.fileno(), 0)
    except OSError as error:
        return error.errno != errno.EBADF
    return True


def _occupy() -> None:
    """Keep the numbers of closed streams from files of ours: what llama.cpp prints would get into them."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
