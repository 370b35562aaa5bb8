"""What a reference means."""

from pathlib import Path

from specgguf.config import Catalogue, ModelFile


def resolve(reference: str, catalogue: Catalogue) -> Path | ModelFile:
    """A file on this machine, or a file of the catalogue.

    What exists, has a folder in it or ends in .gguf is a path; anything else is MODEL or MODEL:QUANT. Raises
    ConfigError for an unknown name.
    """
    path = Path(reference).expanduser()
    if path.is_file() or len(path.parts) > 1 or path.suffix.lower() == ".gguf":
        return path
    return catalogue.file(reference)
