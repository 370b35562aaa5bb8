"""What the user's references to models mean."""

import re
from collections.abc import Callable
from pathlib import Path

from specgguf.errors import FetchError, SpecggufError, UnknownQuantError, UsageError
from specgguf.models import elsewhere
from specgguf.models.catalogue import Catalogue
from specgguf.models.files import DerivedFile, FieldError, HubFile, ModelFile, SplitFile
from specgguf.models.hub.pins import Pins
from specgguf.models.hub.store import Store
from specgguf.models.lookalikes import reject_lookalike
from specgguf.models.names import ChoiceError, NoSuchQuantError, choose, choose_head

_HUB = re.compile(r"(?P<base>hf:(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[^:]+))?)(?::(?P<wanted>.+))?")
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


class Resolver:
    """Finds the file that a reference means.

    A reference is a path (a file, with a folder in it, or ending in .gguf), or hf:OWNER/REPO[@REVISION] with :QUANT or
    :PATH.gguf or nothing after it, or MODEL[:QUANT] from the catalogue, or PROGRAM:NAME for what another program has
    fetched. A quantization that is not published may have been made on this machine.
    """

    def __init__(self, catalogue: Catalogue, store: Store, can_make: Callable[[str], bool]) -> None:
        """`can_make`: whether llama.cpp can make a quantization."""
        self.catalogue = catalogue
        self._store = store
        self._pins = Pins(store.root / "lock.json")
        self._can_make = can_make

    def resolve(self, reference: str, quant: str | None = None, as_draft: bool = False) -> Path | ModelFile:
        """The file that `reference` means, in the quantization `quant` if that is given.

        If `as_draft`, a draft head in a repository on the hub is taken before a model, and a quantization that does
        not exist stands for a file that is yet to be made. The hub is asked only about references that are not pinned
        yet. Raises UsageError for a malformed reference, ModelError for a folder or for what another program does not
        have, ConfigError for an unknown name, UnknownQuantError for an unknown quantization, FetchError if the hub does
        not have it.
        """
        path = elsewhere.find(reference) or _path(reference)
        if path is not None:
            if quant is None:
                return path
            missing = UnknownQuantError(f"{reference} is a file, and has no other quantization {quant}", "leave it out")
            return self._requantized(reference, path, quant, as_draft, missing)
        base, wanted = _split(reference)
        if quant and wanted and quant.upper() != wanted.upper():
            raise UsageError(f"{reference} and {quant} are two different quantizations", "give only one of them")
        wanted = quant or wanted
        try:
            return self._published(base, wanted, as_draft)
        except UnknownQuantError as error:
            return self._requantized(base, self._published(base, None, as_draft), wanted or "", as_draft, error)

    def _published(self, base: str, wanted: str | None, as_draft: bool) -> ModelFile:
        reference = f"{base}:{wanted}" if wanted else base
        if base.startswith("hf:"):
            return self._pins.get(_pin(reference, as_draft)) or self._from_hub(reference, as_draft)
        return self.catalogue.file(reference)

    def _requantized(
        self, base: str, source: Path | ModelFile, quant: str, as_draft: bool, missing: SpecggufError
    ) -> ModelFile:
        """`source` requantized, for a draft or if that is on disk already. Otherwise raises `missing`."""
        if self._can_make(quant.upper()) and not isinstance(source, DerivedFile):
            derived = DerivedFile(source, quant.upper(), as_draft)
            if as_draft or self._store.find(derived):
                return derived
            if made := self._store.made_from(source):
                missing.hint += f"; made here: {', '.join(f'{base}:{known}' for known in made)}"
            missing.hint += f"; or make it here: specgguf quantize {base} {quant}"
        raise missing

    def _from_hub(self, reference: str, as_draft: bool) -> ModelFile:
        found = _HUB.fullmatch(reference)
        if not found:
            raise UsageError(
                f"{reference} is not a reference to a file on the hub",
                "write hf:owner/repo, hf:owner/repo:QUANT, hf:owner/repo:path.gguf, or hf:owner/repo@revision",
            )
        from specgguf.models.hub import api

        repo = found["repo"]
        revision, entries = api.list_files(repo, found["revision"])
        hint = f"write hf:{repo}:QUANT or hf:{repo}:path.gguf"
        try:
            choice = choose_head if as_draft else choose
            variant = choice({entry.path: entry.size for entry in entries}, found["wanted"])
            by_path = {entry.path: entry for entry in entries}
            parts = tuple(HubFile(repo, revision, *by_path[path]) for path in variant.parts)
        except NoSuchQuantError as error:
            raise UnknownQuantError(f"{repo}: {error}", hint) from None
        except ChoiceError as error:
            raise FetchError(f"{repo}: {error}", hint) from None
        except FieldError as error:
            raise FetchError(f"{repo}: the hub lists an impossible file: {error}", "choose another one") from None
        file = parts[0] if len(parts) == 1 else SplitFile(parts)
        self._pins.put(_pin(reference, as_draft), file)
        return file


def _pin(reference: str, as_draft: bool) -> str:
    """What a reference is called in the lock file: a repository may have a model and a head for it."""
    return f"{reference} as draft" if as_draft else reference


def _split(reference: str) -> tuple[str, str | None]:
    """A reference without its quantization or path, and that quantization or path."""
    found = _HUB.fullmatch(reference)
    if found:
        return found["base"], found["wanted"]
    if reference.startswith("hf:"):
        return reference, None
    base, _, wanted = reference.partition(":")
    return base, wanted or None


def _path(reference: str) -> Path | None:
    """The file on disk that `reference` means; None if it does not mean one."""
    if reference.startswith("hf:"):
        return None
    try:
        reject_lookalike(reference)
        path = Path(reference).expanduser()
        if path.is_file() or len(path.parts) > 1 or path.suffix.lower() == ".gguf":
            return _first_part(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{reference}: {error}", "give a path, the name of a model, or hf:owner/repo") from None
    return None


def _first_part(path: Path) -> Path:
    """The first part if `path` is any part of a split model, or their common name; else `path` itself."""
    if not path.exists():
        parts = sorted(path.parent.glob(f"{path.name.removesuffix('.gguf')}-?????-of-?????.gguf"))
        return _first_part(parts[0]) if parts else path
    if not _PART.search(path.name):
        return path
    siblings = {str(other): 0 for other in path.parent.glob("*.gguf")}
    try:
        return Path(choose(siblings, str(path)).parts[0])
    except ChoiceError as error:
        raise FetchError(f"{path}: {error}", "put all parts in one folder") from None
