"""Which drafts fit a target: of the catalogue, and the target's own MTP layers."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specgguf.errors import ConfigError, SpecggufError, UnreachableError
from specgguf.headers.fitting import check_head
from specgguf.headers.heads import DraftKind, kind_of, num_nextn_layers
from specgguf.headers.parity import Parity, ParityReport
from specgguf.models import elsewhere
from specgguf.models.catalogue import Catalogue
from specgguf.models.files import DerivedFile
from specgguf.models.header import ModelHeader
from specgguf.models.hub.headers import read_header
from specgguf.models.hub.store import Store, size_of

_MAX_SHARE = 0.5
"""A draft larger than this share of the target's size costs about as much time as it saves."""


ITSELF = "the target itself"
"""What the MTP layers of the target's own file are called."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft, compared with a target. `path` is None if it is not on this machine.

    `size` is in bytes; 0 for the target's own MTP layers. `kind` is None if its header could not be read, `report` if
    the two could not be compared. `problem` says why not, or why the draft does not fit; it is empty for one that fits.
    """

    reference: str
    path: Path | None
    size: int
    kind: DraftKind | None
    report: ParityReport | None
    problem: str

    @property
    def fits(self) -> bool:
        """Whether it can draft for the target; False also if that is not known."""
        return self.report is not None and self.report.verdict is not Parity.INCOMPATIBLE


def candidates(target: ModelHeader, catalogue: Catalogue, store: Store, on_disk_only: bool) -> Iterator[Candidate]:
    """Compare every draft that a pair uses with `target`: its own MTP layers, then in the catalogue's order.

    The headers of drafts that are not on disk are read from the hub, unless `on_disk_only`; once the hub cannot be
    reached it is not tried again.
    """
    if num_nextn_layers(target.gguf):
        yield _judged(ITSELF, target.path if target.path.exists() else None, 0, target, target)
    unreachable = ""
    for reference in dict.fromkeys(pair.draft for pair in catalogue.pairs.values() if not pair.is_one_file):
        file = catalogue.file(reference)
        path = store.find(file)
        size = size_of(path or file)
        if path is None and (on_disk_only or unreachable):
            if not on_disk_only:
                yield Candidate(reference, None, size, None, None, unreachable)
            continue
        try:
            header, _ = read_header(path or file, "draft", store)
        except SpecggufError as error:
            problem = "the hub cannot be reached" if isinstance(error, UnreachableError) else error.message
            unreachable = unreachable or (problem if isinstance(error, UnreachableError) else "")
            yield Candidate(reference, path, size, None, None, problem)
        else:
            yield _judged(reference, path, size, target, header)


def draft_on_disk(target: ModelHeader, catalogue: Catalogue, store: Store) -> Candidate | None:
    """The smallest draft on this machine that fits, if it is small enough to save time; else None.

    The target's own MTP layers are not meant: they draft anyway.
    """
    largest = _MAX_SHARE * target.path.stat().st_size
    others = (c for c in candidates(target, catalogue, store, on_disk_only=True) if c.reference != ITSELF)
    found = [c for c in others if c.fits and c.size <= largest]
    return min(found, key=lambda candidate: candidate.size, default=None)


@dataclass(frozen=True, slots=True)
class ModelHere:
    """A model on this machine, `size` in bytes; `draft`: the smallest one here that fits; `remark`: what to know."""

    reference: str
    path: Path
    size: int
    draft: str | None
    remark: str


def models_here(catalogue: Catalogue, store: Store) -> list[ModelHere]:
    """What of the catalogue is here, then what other programs have."""
    found = [
        elsewhere.Found(f"{name}:{quant}", path)
        for name, files in catalogue.models.items()
        for quant, file in files.items()
        if (path := store.find(file))
    ]
    for name in catalogue.models:
        with suppress(ConfigError):  # there is no source that the name alone stands for
            source = catalogue.file(name)
            if isinstance(source, DerivedFile):
                continue
            found += [
                elsewhere.Found(f"{name}:{quant}", path, remark="made here")
                for quant in store.made_from(source)
                if (path := store.find(DerivedFile(source, quant))) and quant not in catalogue.models[name]
            ]
    found += elsewhere.models()
    headers, remarks = dict[str, ModelHeader](), dict[str, str]()
    for one in found:
        remarks[one.reference] = one.problem or one.remark
        if not one.problem:
            try:
                headers[one.reference] = ModelHeader.of_file(one.path, "draft")
            except SpecggufError as error:
                remarks[one.reference] = error.message
    sizes = {one.reference: size_of(one.path) if one.path.is_file() else 0 for one in found}
    return [
        ModelHere(name, one.path, sizes[name], _smallest_draft(name, headers, sizes), remarks[name])
        for one in found
        for name in (one.reference,)
    ]


def _smallest_draft(target: str, headers: Mapping[str, ModelHeader], sizes: Mapping[str, int]) -> str | None:
    """The smallest of these that fits the target and is small enough to save time."""
    if target not in headers or headers[target].kind is not DraftKind.MODEL:
        return None
    for name in sorted(headers, key=sizes.__getitem__):
        if sizes[name] > _MAX_SHARE * sizes[target]:
            return None
        if check_head(headers[target].gguf, headers[name].gguf).verdict is not Parity.INCOMPATIBLE:
            return name
    return None


def _judged(reference: str, path: Path | None, size: int, target: ModelHeader, draft: ModelHeader) -> Candidate:
    report = check_head(target.gguf, draft.gguf)
    problem = report.summary if report.verdict is Parity.INCOMPATIBLE else ""
    return Candidate(reference, path, size, kind_of(draft.gguf, target.gguf), report, problem)
