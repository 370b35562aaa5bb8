"""Which drafts of the catalogue fit a target."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specgguf.errors import SpecggufError, UnreachableError
from specgguf.models.catalogue import Catalogue
from specgguf.models.header import Header
from specgguf.models.hub.headers import read_header
from specgguf.models.hub.store import Store, size_of
from specgguf.models.parity import Parity, ParityReport, compare

_LARGEST_SHARE = 0.5
"""A draft of more than this share of the target's size costs about as much as it saves."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft of the catalogue, judged; `path` is None if it is not on this machine.

    `report` is None if it could not be judged; `problem` says why, or why it does not fit.
    """

    reference: str
    path: Path | None
    size: int
    report: ParityReport | None
    problem: str

    @property
    def fits(self) -> bool:
        """Whether it is known that it can draft for the target."""
        return self.report is not None and self.report.verdict is not Parity.INCOMPATIBLE


def candidates(target: Header, catalogue: Catalogue, store: Store, on_disk_only: bool) -> Iterator[Candidate]:
    """Every draft that a pair of the catalogue names, in the catalogue's order.

    Those not on disk are judged by their headers on the hub, until it cannot be reached.
    """
    unreachable = ""
    for reference in dict.fromkeys(pair.draft for pair in catalogue.pairs.values()):
        file = catalogue.file(reference)
        path = store.find(file)
        size = size_of(path or file)
        if path is None and (on_disk_only or unreachable):
            if not on_disk_only:
                yield Candidate(reference, None, size, None, unreachable)
            continue
        try:
            header, _ = read_header(path or file, "draft", store)
        except SpecggufError as error:
            problem = "the hub cannot be reached" if isinstance(error, UnreachableError) else error.message
            unreachable = unreachable or (problem if isinstance(error, UnreachableError) else "")
            yield Candidate(reference, path, size, None, problem)
        else:
            report = compare(target.tokenizer, header.tokenizer)
            problem = report.summary if report.verdict is Parity.INCOMPATIBLE else ""
            yield Candidate(reference, path, size, report, problem)


def draft_on_disk(target: Header, catalogue: Catalogue, store: Store) -> Candidate | None:
    """The smallest draft on this machine that fits and is small enough to be worth it; None if there is none."""
    largest = _LARGEST_SHARE * target.path.stat().st_size
    found = [c for c in candidates(target, catalogue, store, on_disk_only=True) if c.fits and c.size <= largest]
    return min(found, key=lambda candidate: candidate.size, default=None)
