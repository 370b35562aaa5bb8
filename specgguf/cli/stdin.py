"""What is piped into a command."""

import codecs
import os
import select
import stat
import sys

from specgguf.cli.terminal import output
from specgguf.errors import SpecggufError, UsageError

_MAX_WAIT_S = 10.0
_READ = 1 << 16


def read_piped(wait: bool) -> str:
    """The text on stdin; empty if stdin is a terminal, closed or empty.

    With `wait` false, a pipe that stays silent for 10 seconds counts as empty, and a note says so: programs
    often leave one open. Raises UsageError if it is not UTF-8 text.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    if not wait and _stays_silent():
        output.note(f"nothing arrived on stdin within {_MAX_WAIT_S:.0f} s; answering the prompt alone")
        return ""
    return text_of(sys.stdin.buffer.read(), "stdin")


class PipedLines:
    """The lines of stdin as bytes, numbered from 1, each as soon as it has arrived."""

    def __init__(self) -> None:
        """Raises UsageError if stdin is a terminal or closed."""
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("--lines: nothing is piped in", "specgguf run --lines < FILE")
        self._file = sys.stdin.fileno()
        status = os.fstat(self._file)
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None
        """Bytes of all lines; None if that is not known, as with a pipe."""
        self.bytes_taken = 0
        self._number = 0
        self._arrived = bytearray()
        self._searched = 0  # so much of it has no end of a line
        self._no_more = False

    @property
    def ended(self) -> bool:
        """Whether all lines have been taken."""
        return self._no_more and not self._arrived

    def take(self, wait: bool) -> tuple[int, bytes] | None:
        """The next line and its number; None at the end, or without `wait`, if no whole line has arrived yet."""
        while (end := self._arrived.find(b"\n", self._searched)) < 0:
            self._searched = len(self._arrived)
            if self._no_more:
                end = len(self._arrived) - 1
                break
            if not wait and not _has_arrived(self._file):
                return None
            self._read()
        if end < 0:
            return None
        line = bytes(self._arrived[: end + 1])
        del self._arrived[: end + 1]
        self._searched = 0
        self.bytes_taken += len(line)
        self._number += 1
        return self._number, line

    def _read(self) -> None:
        try:
            found = os.read(self._file, _READ)
        except BlockingIOError:
            select.select([self._file], [], [])
            return
        except OSError as error:
            raise SpecggufError(f"cannot read stdin: {error.strerror}", "check what stdin is redirected from") from None
        self._arrived += found
        self._no_more = not found


def _has_arrived(file: int) -> bool:
    """Whether reading does not wait. Windows cannot tell."""
    return os.name == "nt" or bool(select.select([file], [], [], 0)[0])


def without_line_end(text: str) -> str:
    """The text without the end of its last line, of either kind."""
    return text.removesuffix("\n").removesuffix("\r")


def text_of(data: bytes, what: str) -> str:
    """What was piped in, as text; raises UsageError if it is none."""
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} is not UTF-8 text (byte {error.start})", "convert it first, for example with iconv"
        ) from None
    if "\0" in text:
        raise UsageError(f"{what} is binary data", "pipe in text")
    return text


def _stays_silent() -> bool:
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if os.name == "nt" or not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    return not select.select([sys.stdin], [], [], _MAX_WAIT_S)[0]
