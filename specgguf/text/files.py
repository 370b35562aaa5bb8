"""Writing small files, and links."""

import os
from pathlib import Path

from specgguf.errors import UsageError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in one step: whatever interrupts, it has its old content or all of the new.

    A device or a pipe is written to, and stays what it is.
    """
    body = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(body)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_bytes(body)
    temporary.replace(path)


def replace_link(link: Path, target: Path) -> None:
    """Make `link` a symbolic link to `target`, in place of whatever is there."""
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f"{link.name}.{os.getpid()}")
    temporary.symlink_to(target)
    temporary.replace(link)  # in one step: another process may do the same


def check_place(path: Path) -> None:
    """Raise UsageError if no file can be written to `path`: to be called before there is work to lose."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        reason = "it is a folder" if path.is_dir() else "there is no such folder"
        raise UsageError(f"cannot write {path}: {reason}", "choose another place")


def save(path: Path, content: str | bytes) -> None:
    """Write a file that the user asked for, in one step. Raises UsageError if it cannot be written."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "choose another place") from None
