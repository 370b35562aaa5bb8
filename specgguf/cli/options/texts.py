"""Texts and files of texts that options name."""

from collections.abc import Sequence
from pathlib import Path

from specgguf.errors import UsageError


def read_file(option: str, path: Path, hint: str = "check the path") -> str:
    """The text of the file that --`option` names; raises UsageError, with this hint, if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"--{option}: {path} is not UTF-8 text", "convert it first", (option,)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--{option}: cannot read {path}: {reason}", hint, (option,)) from None


def check_texts(option: str, texts: Sequence[str]) -> None:
    """Raises UsageError if one of the texts that --`option` was given is empty or not UTF-8."""
    for text in texts:
        if not text:
            raise UsageError(f"--{option} is empty", f"give --{option} some text, or leave it out", (option,))
        if not is_utf8(text):
            raise UsageError(f"--{option} is not UTF-8 text", "check the encoding of your terminal", (option,))


def is_utf8(text: str) -> bool:
    """Whether an argument of the command line was text in UTF-8; Python keeps other bytes as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
