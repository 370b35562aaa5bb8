"""What is piped into a command."""

import codecs
import os
import select
import stat
import sys

from specgguf.cli import output
from specgguf.errors import UsageError

_PATIENCE_S = 10.0


def read_piped(wait: bool) -> str:
    """The text on stdin; empty if stdin is a terminal, closed or empty.

    With `wait` false, a pipe that stays silent for 10 seconds counts as empty, and a note says so: programs
    often leave an open one behind. Raises UsageError if it is not UTF-8 text.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    if not wait and _silent():
        output.note(f"nothing arrived on stdin within {_PATIENCE_S:.0f} s; answering the prompt alone")
        return ""
    data = sys.stdin.buffer.read()
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"stdin is not UTF-8 text (byte {error.start})", "convert it first, for example with iconv"
        ) from None
    if "\0" in text:
        raise UsageError("stdin is binary data", "pipe in text")
    return text


def _silent() -> bool:
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if os.name == "nt" or not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    return not select.select([sys.stdin], [], [], _PATIENCE_S)[0]
