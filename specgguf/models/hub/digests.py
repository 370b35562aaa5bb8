"""The sha256 of files on disk."""

import contextlib
import hashlib
import os
import re
from pathlib import Path

from specgguf.text.files import write_whole

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Digests:
    """Hashes files, and remembers each hash in a folder for as long as the file keeps its size and time of change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def known(self, path: Path) -> str | None:
        """The remembered hash, if there is one: the file itself is not read."""
        note = self._note(path)
        digest = note.read_text(errors="replace") if note.is_file() else ""
        return digest if _SHA256.fullmatch(digest) else None

    def of(self, path: Path) -> str:
        """The hash of a file, 64 hexadecimal digits."""
        if known := self.known(path):
            return known
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.remember(path, digest)
        return digest

    def remember(self, path: Path, digest: str) -> None:
        """Take over a hash that was computed elsewhere."""
        with contextlib.suppress(OSError):  # a read-only folder only forgets
            write_whole(self._note(path), digest)

    def _note(self, path: Path) -> Path:
        """The file with the hash of `path` in its present state."""
        state = path.stat()
        identity = f"{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}"
        return self._folder / hashlib.sha256(os.fsencode(identity)).hexdigest()
