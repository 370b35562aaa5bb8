"""A file while it is being downloaded."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

_BLOCK = 1 << 22


class PartialFile:
    """A file that is appended to, and hashed as it grows. It resumes what an earlier run left.

    `on_progress` is told the size in bytes whenever it changes. Close it after use.
    """

    def __init__(self, path: Path, size: int, on_progress: Callable[[int], object]) -> None:
        """Open or create `path`; content of more than `size` bytes cannot be the beginning, and is dropped."""
        self.path = path
        self._on_progress = on_progress
        self._digest = hashlib.sha256()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        if path.stat().st_size > size:
            self._file.truncate(0)
        self._file.seek(0)
        while block := self._file.read(_BLOCK):
            self._digest.update(block)
        on_progress(self.tell())

    def tell(self) -> int:
        """Size so far, in bytes."""
        return self._file.tell()

    def write(self, data: bytes) -> int:
        """Append `data`; returns its length."""
        self._file.write(data)
        self._file.flush()  # so it survives if this process is killed
        self._digest.update(data)
        self._on_progress(self.tell())
        return len(data)

    def clear(self) -> None:
        """Drop all content, when a server cannot resume."""
        self._digest = hashlib.sha256()
        self._file.truncate(0)
        self._file.seek(0)

    @property
    def sha256(self) -> str:
        """Hash of the content so far, 64 hexadecimal digits."""
        return self._digest.hexdigest()

    def sync(self) -> None:
        """Make sure the content is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; its content stays."""
        self._file.close()
