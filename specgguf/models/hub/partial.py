"""A file on its way here."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from specgguf.text.closing import Closing

_BLOCK = 1 << 22


class PartialFile(Closing):
    """A temporary file that is appended to and hashed as it grows; it resumes what an earlier run left.

    `on_progress` is told the size whenever it changes.
    """

    def __init__(self, path: Path, size: int, on_progress: Callable[[int], object]) -> None:
        """Open or create `path`; what is longer than `size` bytes cannot be a beginning and is dropped."""
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
        """Bytes that are here."""
        return self._file.tell()

    def write(self, data: bytes) -> int:
        """Append."""
        self._file.write(data)
        self._file.flush()  # what is here survives a kill
        self._digest.update(data)
        self._on_progress(self.tell())
        return len(data)

    def clear(self) -> None:
        """Drop everything: when a server cannot resume."""
        self._digest = hashlib.sha256()
        self._file.truncate(0)
        self._file.seek(0)

    @property
    def sha256(self) -> str:
        """Hash of the bytes that are here, 64 hexadecimal digits."""
        return self._digest.hexdigest()

    def sync(self) -> None:
        """Make sure the bytes are on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Leave the file as it is."""
        self._file.close()
