"""Headers of GGUF files, on disk or on the hub."""

from pathlib import Path

from specgguf.errors import ModelError
from specgguf.headers.gguf import TruncatedError
from specgguf.models.files import DerivedFile, ModelFile
from specgguf.models.header import ModelHeader
from specgguf.models.hub.store import Store

_FIRST_REQUEST = 4 << 20
_LARGEST_REQUEST = 64 << 20


def read_header(file: Path | ModelFile, role: str, store: Store) -> tuple[ModelHeader, int]:
    """The header of a file on disk, or else on the hub, and how many bytes were fetched for it.

    For a file that is yet to be made it is the source's header, for a split file that of the first part. Raises
    ModelError if the file is not a usable GGUF file, FetchError if the hub does not have it.
    """
    path = store.find(file)
    if path is not None:
        return ModelHeader.of_file(path, role), 0
    if isinstance(file, DerivedFile):
        return read_header(file.source, role, store)
    if isinstance(file, Path):
        return ModelHeader.of_file(file, role), 0
    from specgguf.models.hub import api

    first = file.hub_files[0]
    name, num_fetched, size = Path(f"{first.repo}/{first.path}"), 0, _FIRST_REQUEST
    while size <= _LARGEST_REQUEST:
        data = api.fetch_beginning(first, size)
        num_fetched += len(data)
        try:
            return ModelHeader(name, role, data), num_fetched
        except TruncatedError:
            size *= 2
    raise ModelError(f"{role} model: the header of {name} is larger than {len(data)} bytes", "is it a model?")
