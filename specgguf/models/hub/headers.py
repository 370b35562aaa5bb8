"""GGUF headers of files that need not be here."""

from pathlib import Path

from specgguf.errors import ModelError
from specgguf.models.files import DerivedFile, ModelFile, SplitFile
from specgguf.models.gguf import TruncatedError
from specgguf.models.header import Header
from specgguf.models.hub.store import Store

_FIRST_READ = 4 << 20
_LARGEST_READ = 64 << 20


def read_header(file: Path | ModelFile, role: str, store: Store) -> tuple[Header, int]:
    """The header of a file on disk, or else on the hub, and how many bytes of it came over the network.

    A file yet to be derived has the tokenizer of its source, a split one that of its first part. Raises ModelError if
    it is no GGUF file, FetchError if the hub does not have it.
    """
    path = store.find(file)
    if path is not None:
        return Header.of_file(path, role), 0
    if isinstance(file, DerivedFile):
        return read_header(file.source, role, store)
    if isinstance(file, Path):
        return Header.of_file(file, role), 0
    from specgguf.models.hub import api

    first = file.parts[0] if isinstance(file, SplitFile) else file
    name, read, size = Path(f"{first.repo}/{first.path}"), 0, _FIRST_READ
    while size <= _LARGEST_READ:
        data = api.beginning(first, size)
        read += len(data)
        try:
            return Header(name, role, data), read
        except TruncatedError:
            size *= 2
    raise ModelError(f"{role} model: the header of {name} does not end within {read} bytes", "is it a model?")
