"""The cache that all programs of the Hugging Face hub share: HF_HOME.

Its layout is documented in the hub's guide to its cache: `models--OWNER--NAME/blobs/SHA256` holds a file's bytes, and
`snapshots/REVISION/PATH` is a link to them.
"""

import contextlib
import functools
import os
from pathlib import Path

from specgguf.models.files import HubFile
from specgguf.models.locations import NOWHERE
from specgguf.text.files import replace_link


def root() -> Path:
    """The cache's folder."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE)
    return NOWHERE if folder.parts[0] == "~" else folder  # the hub's library would make a folder of that name


@functools.cache
def is_writable() -> bool:
    """Whether files can be put here."""
    with contextlib.suppress(OSError):
        root().mkdir(parents=True, exist_ok=True)
        return os.access(root(), os.W_OK)
    return False


def blob(file: HubFile) -> Path:
    """Where the file's bytes are."""
    return _folder(file) / "blobs" / file.sha256


def lock(file: HubFile) -> Path:
    """The file that is locked during a download, by the hub's own library too."""
    return root() / ".locks" / _folder(file).name / f"{file.sha256}.lock"


def find(file: HubFile) -> Path | None:
    """The file under its own name; if only the blob is there, it gets that name first."""
    named = _named(file)
    if blob(file).is_file() and not (named.exists() and named.samefile(blob(file))):
        with contextlib.suppress(OSError):  # the cache may be read-only
            _link(named, blob(file))
    return named if named.is_file() else None


def remove(file: HubFile) -> None:
    """Delete the file, and its blob unless another revision has the same one."""
    named = _named(file)
    named.unlink(missing_ok=True)
    others = (path for path in (_folder(file) / "snapshots").rglob("*") if path.is_symlink())
    if not any(path.resolve() == blob(file).resolve() for path in others):
        blob(file).unlink(missing_ok=True)
    for folder in (*named.parents, blob(file).parent, _folder(file) / "snapshots", _folder(file)):
        if folder.is_relative_to(_folder(file)):
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def _folder(file: HubFile) -> Path:
    return root() / "--".join(["models", *file.repo.split("/")])


def _named(file: HubFile) -> Path:
    return _folder(file) / "snapshots" / file.revision / file.path


def _link(named: Path, blob: Path) -> None:
    try:
        replace_link(named, Path(os.path.relpath(blob, named.parent)))
    except OSError:
        if os.name != "nt":
            raise
        blob.replace(named)  # Windows may forbid links: then the file itself belongs in the snapshot
