"""Free space on the disks that model files are written to."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from specgguf.errors import FetchError

FREE_SOME = "free some space, or set HF_HOME (downloads) or SPECGGUF_HOME (everything else) to a folder on another disk"
"""The hint when a disk is full."""

_RESERVE = 64 << 20
"""Bytes that must stay free."""


class DiskSpace(NamedTuple):
    """Bytes that will be written to a disk, and bytes that are free on it."""

    folder: Path
    needed: int
    free: int


def space_by_disk(needed: Mapping[Path, int]) -> list[DiskSpace]:
    """Add up the bytes `needed` in folders, by disk. Folders need not exist yet; the first one stands for its disk."""
    disks: dict[int, DiskSpace] = {}
    for folder, num_bytes in needed.items():
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        number = existing.stat().st_dev
        disk = disks.setdefault(number, DiskSpace(folder, 0, shutil.disk_usage(existing).free))
        disks[number] = disk._replace(needed=disk.needed + num_bytes)
    return list(disks.values())


def check_space(disks: Sequence[DiskSpace]) -> None:
    """Raise FetchError if one of the disks has too little free space."""
    for folder, needed, free in disks:
        if needed and needed + _RESERVE > free:
            raise FetchError(
                f"no space left for model files: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free "
                f"in {folder}",
                FREE_SOME,
            )
