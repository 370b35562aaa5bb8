"""Answers of earlier runs to draft from, in a file of the user's choice."""

import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import filelock
import numpy as np
from numpy.typing import NDArray

from specgguf.errors import UsageError
from specgguf.text.files import check_file, write_whole

MOST = 200_000
"""Tokens kept of each tokenizer's texts, the latest: all of them are indexed anew at every start."""

_Tokens = NDArray[np.int32]


class NgramStore:
    """Texts as token ids, by the fingerprint of the tokenizer they belong to.

    The file is an .npz archive with an array for each tokenizer, in which every text ends with -1.
    """

    def __init__(self, path: Path) -> None:
        """Raises UsageError if there is something else at `path`, or if it cannot be written to."""
        check_file(path)
        self._path = path.resolve()  # what links lead to is locked, and not each link
        self._known = self._read()

    def texts(self, fingerprint: str) -> list[list[int]]:
        """What was stored for this tokenizer, oldest first."""
        tokens = self._known.get(fingerprint, np.empty(0, np.int32))
        return [text[:-1].tolist() for text in np.split(tokens, np.flatnonzero(tokens < 0) + 1) if len(text) > 1]

    def add(self, fingerprint: str, text: Sequence[int]) -> None:
        """Store one more text, beside what other processes have stored meanwhile."""
        if not text:
            return
        try:
            with filelock.FileLock(self._path.with_name(f"{self._path.name}.lock")):
                self._known = self._read()
                before = self._known.get(fingerprint, np.empty(0, np.int32))
                self._known[fingerprint] = np.concatenate([before, np.array([*text, -1], np.int32)])[-MOST:]
                archive = io.BytesIO()
                np.savez_compressed(archive, allow_pickle=False, **self._known)
                write_whole(self._path, archive.getvalue())
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}", "choose another place") from None

    def _read(self) -> dict[str, _Tokens]:
        try:
            with np.load(self._path, allow_pickle=False) as archive:
                found = {name: archive[name] for name in archive.files}
        except (FileNotFoundError, EOFError):  # mktemp makes an empty file
            return {}
        except OSError as error:
            raise UsageError(f"cannot read {self._path}: {error.strerror or error}", "choose another place") from None
        except (ValueError, TypeError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error):
            raise self._no_store() from None
        if any(tokens.dtype != np.int32 or tokens.ndim != 1 for tokens in found.values()):
            raise self._no_store()
        return found

    def _no_store(self) -> UsageError:
        return UsageError(
            f"{self._path} is no store of texts, or it is damaged", "choose another file, or delete it to begin anew"
        )
