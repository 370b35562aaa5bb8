"""Model files on this machine."""

import contextlib
import errno
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from specgguf.errors import FetchError
from specgguf.models.files import DerivedFile, HubFile, ModelFile, SplitFile
from specgguf.models.hub.derived import DerivedFiles, Quantize
from specgguf.models.hub.digests import Digests
from specgguf.models.hub.downloads import Downloads
from specgguf.models.hub.progress import Progress
from specgguf.models.hub.space import FREE_SOME, DiskSpace, check_space, space_by_disk
from specgguf.models.locations import NOWHERE
from specgguf.text.files import replace_link


class Store:
    """Finds, fetches and makes model files.

    In `root`: `files/` leads to what was fetched, `derived/` has what was made here, `splits/SHA256 OF THE FIRST PART/`
    links to all parts of a model, `verified/` the hashes of files as they were when read.
    """

    def __init__(self, root: Path, progress: Progress, quantize: Quantize, offline: bool = False) -> None:
        self.root = root
        self.digests = Digests(root / "verified")
        self.progress = progress
        self._downloads = Downloads(root / "files", self.digests, progress, offline)
        self._derived = DerivedFiles(root / "derived", self.digests, progress, quantize)

    def provide(self, wanted: Sequence[Path | ModelFile]) -> list[Path]:
        """Paths of the files wanted, in order. What is not here yet is fetched or made; paths stay as they are.

        Free space is checked before the network is used. Raises FetchError if a file cannot be fetched or verified, or
        if there is not enough space for all of them.
        """
        with self._map_errors(), contextlib.closing(self.progress):
            absent = [file for file in wanted if not isinstance(file, Path) and self.find(file) is None]
            if absent:  # else the hub's library, which is slow to import, is not needed
                disks = self.space(absent)
                for disk in disks:
                    if disk.needed:
                        disk.folder.mkdir(parents=True, exist_ok=True)
                check_space(disks)
                for file in self.missing(absent):
                    self.progress.expect(file.name, file.size)
            return [file if isinstance(file, Path) else self._provide(file) for file in wanted]

    def find(self, file: Path | ModelFile) -> Path | None:
        """Where a file is on disk, the first part if it is split; None unless all of it is there, intact."""
        if isinstance(file, DerivedFile):
            return self._derived.find(file)
        if isinstance(file, SplitFile):
            return self._link_parts(file) if all(self._downloads.find(part) for part in file.parts) else None
        return file if isinstance(file, Path) else self._downloads.find(file)

    def made_from(self, source: Path | HubFile | SplitFile) -> list[str]:
        """The quantizations, for any use, that were made here from a file."""
        with self._map_errors():
            return self._derived.made_from(source)

    def missing(self, files: Sequence[ModelFile]) -> list[HubFile]:
        """What must be fetched before all of `files` are here, each file once."""
        wanted = [part for file in files if self.find(file) is None for part in file.hub_files]
        return [file for file in dict.fromkeys(wanted) if self._downloads.find(file) is None]

    def space(self, files: Sequence[ModelFile]) -> list[DiskSpace]:
        """By disk, what must be written before all of `files` are here; the disk for downloads is always listed."""
        downloads = self._downloads.folder
        needed = {downloads: sum(map(self._downloads.num_bytes_missing, self.missing(files)))}
        derived = [size_of(file) for file in files if isinstance(file, DerivedFile) and self.find(file) is None]
        needed[self.root] = needed.get(self.root, 0) + sum(derived)
        return [disk for disk in space_by_disk(needed) if disk.needed or disk.folder == downloads]

    def remove(self, file: ModelFile) -> None:
        """Delete a file, and what it was made from."""
        with self._map_errors():
            if isinstance(file, DerivedFile):
                self._derived.remove(file)
            if isinstance(file, SplitFile):
                shutil.rmtree(self._split_folder(file), ignore_errors=True)
            for part in file.hub_files:
                self._downloads.remove(part)

    def _provide(self, file: ModelFile) -> Path:
        if isinstance(file, DerivedFile):
            source = file.source
            return self._derived.find(file) or self._derived.make(
                file, source if isinstance(source, Path) else self._provide(source)
            )
        if isinstance(file, SplitFile):
            return self._link_parts(file)
        return self._downloads.find(file) or self._downloads.fetch(file)

    def _link_parts(self, file: SplitFile) -> Path:
        """Links to all parts in one folder, where llama.cpp looks for them; the first one's path."""
        folder = self._split_folder(file)
        for part in file.parts:
            path, link = self._provide(part), folder / part.name
            if not (link.exists() and link.samefile(path)):
                replace_link(link, path.absolute())
        return folder / file.name

    def _split_folder(self, file: SplitFile) -> Path:
        return self.root / "splits" / file.parts[0].sha256

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        """Turn an OSError into a FetchError."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise FetchError(
                    f"no space left for model files in {error.filename or self._downloads.folder}", FREE_SOME
                ) from error
            if self.root == NOWHERE:
                raise FetchError(
                    "this user has no home folder for model files",
                    "set HOME, or SPECGGUF_HOME and HF_HOME, to folders that can be written to",
                ) from error
            raise FetchError(
                f"cannot use the store: {error.filename or self.root}: {error.strerror or error}",
                "set SPECGGUF_HOME, or HF_HOME, to another folder",
            ) from error


def size_of(file: Path | ModelFile) -> int:
    """Size in bytes of a file that need not be here; of one that is made here, the size of its source."""
    if isinstance(file, DerivedFile):
        return size_of(file.source)
    return file.stat().st_size if isinstance(file, Path) else sum(part.size for part in file.hub_files)
