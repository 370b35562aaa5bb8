"""What people give as a model and is none: what it is, and how to name what they mean."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from specgguf.errors import ModelError, UsageError

_PAGE = re.compile(
    r"/(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:/(?:blob|resolve|tree)/(?P<revision>[^/]+))?/?(?P<file>.*\.gguf)?.*"
)
"""The path of a page of the hub."""
_REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*(?::[^/]+)?")
_LISTED = 3


def reject_lookalike(reference: str) -> None:
    """Raises UsageError for an empty name or the address of a page, ModelError for a folder or a bare OWNER/REPO."""
    if not reference.strip():
        raise UsageError("the name of a model is empty", "give a path, the name of a model, or hf:owner/repo")
    if "://" in reference:
        raise UsageError(f"{reference} is the address of a page, not a model", _named_on_the_hub(reference))
    path = Path(reference).expanduser()
    if path.is_dir():
        raise ModelError(f"{reference} is a folder, not a model", _inside(path))
    if _REPOSITORY.fullmatch(reference) and path.suffix.lower() != ".gguf" and not path.exists():
        raise ModelError(f"no such file: {reference}", f"if it is a repository on the hub, write hf:{reference}")


def _named_on_the_hub(address: str) -> str:
    found = _PAGE.fullmatch(urlsplit(address).path)
    if not found:
        return "give the path of a file, or hf:owner/repo for a repository on the hub"
    revision = f"@{found['revision']}" if found["revision"] not in (None, "main") else ""
    file = f":{found['file']}" if found["file"] else ""
    return f"for what is on the hub, write hf:{found['repo']}{revision}{file}"


def _inside(folder: Path) -> str:
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix.lower() == ".gguf")
    except OSError as error:
        return f"give a .gguf file: the folder cannot be read ({error.strerror})"
    if not names:
        return "give a .gguf file: there is none in this folder"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"give one of its files: {', '.join(names[:_LISTED])}{more}"
