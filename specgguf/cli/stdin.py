"""What is piped into a command."""

import codecs
import os
import select
import stat
import sys
from collections.abc import Iterator

from specgguf.cli.terminal import output
from specgguf.errors import UsageError

_MAX_WAIT_S = 10.0


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
        status = os.fstat(sys.stdin.fileno())
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None
        """Bytes of all lines; None if that is not known, as with a pipe."""
        self.bytes_read = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for number, line in enumerate(sys.stdin.buffer, 1):
            self.bytes_read += len(line)
            yield number, line


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
