"""The cache that all programs of the Hugging Face hub share: HF_HOME.

Its layout, the hub library's own: `models--OWNER--NAME/blobs/SHA256` holds a file's bytes and
`snapshots/REVISION/PATH` is a link to them.
"""

import contextlib
import functools
import os
from pathlib import Path

from huggingface_hub import constants
from huggingface_hub.file_download import _create_symlink, repo_folder_name

from specgguf.models.files import HubFile


def root() -> Path:
    """The cache's folder."""
    return Path(constants.HF_HUB_CACHE)


@functools.cache
def is_writable() -> bool:
    """Whether files can be put here."""
    with contextlib.suppress(OSError):
        root().mkdir(parents=True, exist_ok=True)
        return os.access(root(), os.W_OK)
    return False


def blob(file: HubFile) -> Path:
    """Where its bytes lie."""
    return _folder(file) / "blobs" / file.sha256


def lock(file: HubFile) -> Path:
    """What the hub's library locks, too, while it fetches the file."""
    return root() / ".locks" / _folder(file).name / f"{file.sha256}.lock"


def find(file: HubFile) -> Path | None:
    """The file under its own name; bytes that lack it are given it first."""
    pointer = _pointer(file)
    if blob(file).is_file() and not (pointer.exists() and pointer.samefile(blob(file))):
        with contextlib.suppress(OSError):  # a cache that cannot be written to
            pointer.parent.mkdir(parents=True, exist_ok=True)
            _create_symlink(str(blob(file)), str(pointer), new_blob=True)
    return pointer if pointer.is_file() else None


def remove(file: HubFile) -> None:
    """Take the file away, its bytes too unless another revision has the same."""
    _pointer(file).unlink(missing_ok=True)
    others = (path for path in (_folder(file) / "snapshots").rglob("*") if path.is_symlink())
    if not any(path.resolve() == blob(file).resolve() for path in others):
        blob(file).unlink(missing_ok=True)
    for folder in (*_pointer(file).parents, blob(file).parent, _folder(file) / "snapshots", _folder(file)):
        if folder.is_relative_to(_folder(file)):
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def _folder(file: HubFile) -> Path:
    return root() / repo_folder_name(repo_id=file.repo, repo_type="model")


def _pointer(file: HubFile) -> Path:
    return _folder(file) / "snapshots" / file.revision / file.path
