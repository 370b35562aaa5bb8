"""What a reference means."""

import re
from pathlib import Path

from specgguf.config import Catalogue, HubFile, ModelFile, SplitFile
from specgguf.core.naming import NoChoiceError, choose
from specgguf.errors import FetchError, UsageError
from specgguf.hub.lock import Lock

_HUB = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^:]+))?(?::(?P<wanted>.+))?")
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


class Resolver:
    """Turns what users write into files.

    A reference is a path (what exists, has a folder in it or ends in .gguf), hf:OWNER/REPO[@REVISION][:QUANT or
    :PATH.gguf], or MODEL[:QUANT] of the catalogue.
    """

    def __init__(self, catalogue: Catalogue, lock: Lock) -> None:
        self.catalogue = catalogue
        self._lock = lock

    def resolve(self, reference: str) -> Path | ModelFile:
        """The file, or the split files, that `reference` means; the hub is asked only for what is not pinned yet.

        Raises UsageError for a malformed reference, ConfigError for an unknown name, FetchError if the hub does not
        have it.
        """
        if reference.startswith("hf:"):
            return self._lock.get(reference) or self._from_hub(reference)
        try:
            path = Path(reference).expanduser()
            if path.is_file() or len(path.parts) > 1 or path.suffix.lower() == ".gguf":
                return _local(path)
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"{reference}: {error}", "give a path, a name of models.toml, or hf:owner/repo") from None
        return self.catalogue.file(reference)

    def _from_hub(self, reference: str) -> ModelFile:
        found = _HUB.fullmatch(reference)
        if not found:
            raise UsageError(
                f"{reference}: no reference to a file on the hub",
                "write hf:owner/repo, hf:owner/repo:QUANT, hf:owner/repo:path.gguf, or hf:owner/repo@revision",
            )
        from specgguf.hub import hub

        repo = found["repo"]
        revision, entries = hub.list_files(repo, found["revision"])
        try:
            variant = choose([entry.path for entry in entries], found["wanted"])
        except NoChoiceError as error:
            raise FetchError(f"{repo}: {error}", f"write hf:{repo}:QUANT or hf:{repo}:path.gguf") from None
        by_path = {entry.path: entry for entry in entries}
        parts = tuple(HubFile(repo, revision, *by_path[path]) for path in variant.parts)
        file = parts[0] if len(parts) == 1 else SplitFile(parts)
        self._lock.put(reference, file)
        return file


def _local(path: Path) -> Path:
    """The file itself; of a split model the first part, whichever part or the stem is named."""
    if not path.exists():
        first_parts = sorted(path.parent.glob(f"{path.name.removesuffix('.gguf')}-00001-of-*.gguf"))
        return first_parts[0] if first_parts else path
    if not _PART.search(path.name):
        return path
    siblings = [str(other) for other in path.parent.glob("*.gguf")]
    try:
        return Path(choose(siblings, str(path)).parts[0])
    except NoChoiceError as error:
        raise FetchError(f"{path}: {error}", "put all parts into one folder") from None
