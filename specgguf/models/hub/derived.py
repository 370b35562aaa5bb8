"""Files made on this machine by requantizing others."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import filelock

from specgguf.models.files import DerivedFile, HubFile, SplitFile
from specgguf.models.hub.digests import Digests
from specgguf.models.hub.progress import Progress
from specgguf.text.files import write_whole

Quantize = Callable[[Path, Path, str, bool, Callable[[int, int], object]], None]
"""`llama.quantize.quantize`: source, destination, quantization, whether the output tensor gets it too, and a function
that is told how many tensors of how many are done.
"""


class DerivedFiles:
    """Makes files, and finds those that were made: `root`/SHA256-QUANT.gguf, by the source's hash.

    Beside each file stands its own hash: a file that has changed since is made again.
    """

    def __init__(self, root: Path, digests: Digests, progress: Progress, quantize: Quantize) -> None:
        self._root = root
        self._digests = digests
        self._progress = progress
        self._quantize = quantize

    def find(self, file: DerivedFile) -> Path | None:
        """The file, if it is still what was made."""
        path = self._path(file)
        digest = path.with_suffix(".sha256")
        intact = path.is_file() and digest.is_file() and digest.read_bytes() == self._digests.of(path).encode()
        return path if intact else None

    def made_from(self, source: Path | HubFile | SplitFile) -> list[str]:
        """The quantizations, for any use, that were made from a file."""
        path = self._path(DerivedFile(source, "*"))
        stems = [made.stem.removeprefix(path.stem.removesuffix("*")) for made in sorted(self._root.glob(path.name))]
        return [quant for quant in stems if "-" not in quant and self.find(DerivedFile(source, quant))]

    def make(self, file: DerivedFile, source: Path) -> Path:
        """Requantize `source`; raises ModelError if llama.cpp fails."""
        path = self._path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock")):
            if self.find(file) is None:  # else another process was faster
                temporary = path.with_suffix(".partial")
                show = partial(self._progress.show, f"requantizing {file.name}")
                self._quantize(source, temporary, file.quant, file.same_output_type, show)
                temporary.replace(path)
                write_whole(path.with_suffix(".sha256"), self._digests.of(path))
        return path

    def remove(self, file: DerivedFile) -> None:
        """Delete a file with all that belongs to it."""
        for path in self._root.glob(f"{self._path(file).stem}.*"):
            path.unlink()

    def _path(self, file: DerivedFile) -> Path:
        source = file.source
        digest = self._digests.of(source) if isinstance(source, Path) else source.hub_files[0].sha256
        return self._root / f"{digest[:16]}-{file.quant}{'-draft' if file.same_output_type else ''}.gguf"
