"""What a reference means."""

import re
from collections.abc import Callable
from pathlib import Path

from specgguf.errors import FetchError, SpecggufError, UnknownQuantError, UsageError
from specgguf.models.catalogue import Catalogue
from specgguf.models.files import DerivedFile, HubFile, ModelFile, SplitFile
from specgguf.models.hub.lock import Lock
from specgguf.models.hub.store import Store
from specgguf.models.names import NoChoiceError, NoQuantError, choose

_HUB = re.compile(r"(?P<base>hf:(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[^:]+))?)(?::(?P<wanted>.+))?")
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


class Resolver:
    """Turns what users write into files.

    A reference is a path (what exists, has a folder in it or ends in .gguf), hf:OWNER/REPO[@REVISION][:QUANT or
    :PATH.gguf], or MODEL[:QUANT] of the catalogue. A quantization that nobody publishes can be one that was made on
    this machine.
    """

    def __init__(self, catalogue: Catalogue, store: Store, can_make: Callable[[str], bool]) -> None:
        """`can_make` tells whether a quantization can be made here."""
        self.catalogue = catalogue
        self._store = store
        self._lock = Lock(store.root / "lock.json")
        self._can_make = can_make

    def resolve(self, reference: str, quant: str | None = None, as_draft: bool = False) -> Path | ModelFile:
        """The file, or the split files, that `reference` means, in the quantization `quant` if one is given.

        As a draft, a quantization that does not exist is one to be made. The hub is asked only for what is not
        pinned yet. Raises UsageError for a malformed reference, ConfigError for an unknown name, UnknownQuantError,
        FetchError if the hub does not have it.
        """
        path = _path(reference)
        if path is not None:
            if quant is None:
                return path
            missing = UnknownQuantError(f"{reference} is one file, there is no {quant} beside it", "leave it out")
            return self._made_here(reference, path, quant, as_draft, missing)
        base, wanted = _parts(reference)
        if quant and wanted and quant.upper() != wanted.upper():
            raise UsageError(f"{reference} names a quantization, and {quant} is another", "give one of them")
        wanted = quant or wanted
        try:
            return self._published(base, wanted)
        except UnknownQuantError as error:
            return self._made_here(base, self._published(base, None), wanted or "", as_draft, error)

    def _published(self, base: str, wanted: str | None) -> ModelFile:
        reference = f"{base}:{wanted}" if wanted else base
        if base.startswith("hf:"):
            return self._lock.get(reference) or self._from_hub(reference)
        return self.catalogue.file(reference)

    def _made_here(
        self, base: str, source: Path | ModelFile, quant: str, as_draft: bool, missing: SpecggufError
    ) -> ModelFile:
        """`source` requantized, if that is on disk or to be made; else raises `missing`."""
        if self._can_make(quant.upper()) and not isinstance(source, DerivedFile):
            derived = DerivedFile(source, quant.upper(), as_draft)
            if as_draft or self._store.find(derived):
                return derived
            missing.hint += f"; or make it here: specgguf quantize {base} {quant}"
        raise missing

    def _from_hub(self, reference: str) -> ModelFile:
        found = _HUB.fullmatch(reference)
        if not found:
            raise UsageError(
                f"{reference}: no reference to a file on the hub",
                "write hf:owner/repo, hf:owner/repo:QUANT, hf:owner/repo:path.gguf, or hf:owner/repo@revision",
            )
        from specgguf.models.hub import api

        repo = found["repo"]
        revision, entries = api.list_files(repo, found["revision"])
        hint = f"write hf:{repo}:QUANT or hf:{repo}:path.gguf"
        try:
            variant = choose({entry.path: entry.size for entry in entries}, found["wanted"])
            by_path = {entry.path: entry for entry in entries}
            parts = tuple(HubFile(repo, revision, *by_path[path]) for path in variant.parts)
        except NoQuantError as error:
            raise UnknownQuantError(f"{repo}: {error}", hint) from None
        except NoChoiceError as error:
            raise FetchError(f"{repo}: {error}", hint) from None
        except ValueError as error:
            raise FetchError(f"{repo}: the hub lists a file that cannot be: {error}", "choose another one") from None
        file = parts[0] if len(parts) == 1 else SplitFile(parts)
        self._lock.put(reference, file)
        return file


def _parts(reference: str) -> tuple[str, str | None]:
    """A reference without its quantization or path, and that."""
    found = _HUB.fullmatch(reference)
    if found:
        return found["base"], found["wanted"]
    if reference.startswith("hf:"):
        return reference, None
    base, _, wanted = reference.partition(":")
    return base, wanted or None


def _path(reference: str) -> Path | None:
    """The file on disk that is meant, None if none is."""
    if reference.startswith("hf:"):
        return None
    try:
        path = Path(reference).expanduser()
        if path.is_file() or len(path.parts) > 1 or path.suffix.lower() == ".gguf":
            return _first_part(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{reference}: {error}", "give a path, a name of models.toml, or hf:owner/repo") from None
    return None


def _first_part(path: Path) -> Path:
    """The file itself; of a split model the first part, whichever part or the stem is named."""
    if not path.exists():
        parts = sorted(path.parent.glob(f"{path.name.removesuffix('.gguf')}-?????-of-?????.gguf"))
        return _first_part(parts[0]) if parts else path
    if not _PART.search(path.name):
        return path
    siblings = {str(other): 0 for other in path.parent.glob("*.gguf")}
    try:
        return Path(choose(siblings, str(path)).parts[0])
    except NoChoiceError as error:
        raise FetchError(f"{path}: {error}", "put all parts into one folder") from None
