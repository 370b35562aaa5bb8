"""Writing small files, and links."""

import errno
import os
import stat
from pathlib import Path

from specgguf.errors import UsageError

_NOTHING_BESIDE = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS)
"""What is said where a file can be written to, but not be replaced: as one that is mounted by itself in a container."""


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in one step: whatever interrupts, it has its old content or all of the new.

    What is there stays what it is: a link leads to the new content, a file keeps its mode, a device or a pipe is
    written to. Characters that stand for bytes of names that are not UTF-8 are written as JSON would have them.
    """
    body = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(body)
        return
    place = Path(os.path.realpath(path))
    if place.exists() and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        _replace(place, body)
    except OSError as error:
        if error.errno not in _NOTHING_BESIDE or not place.exists():
            raise
        place.write_bytes(body)


def _replace(place: Path, body: bytes) -> None:
    temporary = _beside(place)
    try:
        temporary.write_bytes(body)
        if place.exists():
            old = place.stat()
            if os.name != "nt" and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(temporary, old.st_uid, old.st_gid)
            temporary.chmod(stat.S_IMODE(old.st_mode))
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(place: Path) -> Path:
    """Where a file is written before it has its name."""
    return place.with_name(f"{place.name}.{os.getpid()}")


def replace_link(link: Path, target: Path) -> None:
    """Make `link` a symbolic link to `target`, in place of whatever is there."""
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f"{link.name}.{os.getpid()}")
    temporary.symlink_to(target)
    temporary.replace(link)  # in one step: another process may do the same


def check_place(path: Path) -> None:
    """Raise UsageError if no file can be written to `path`: to be called before there is work to lose."""
    if reason := _obstacle(path):
        raise UsageError(f"cannot write {path}: {reason}", "choose another place")


def check_file(path: Path) -> None:
    """The same for a file that is read again, and may not be there yet: raises UsageError for devices and pipes too."""
    check_place(path)
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot use {path}: it is not a regular file", "choose another place")


def save(path: Path, content: str | bytes) -> None:
    """Write a file that the user asked for, in one step. Raises UsageError if it cannot be written."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "choose another place") from None


def _obstacle(path: Path) -> str:
    """Why no file can be written there; empty if one can."""
    place = Path(os.path.realpath(path))
    if os.path.isdir(place):  # os.path's own are false where Path's raise
        return "it is a folder"
    if not os.path.isdir(place.parent):
        return "there is no such folder"
    try:
        os.lstat(_beside(place))
    except FileNotFoundError:
        pass
    except OSError as error:
        return str(error.strerror)
    writable = os.access(path if os.path.exists(path) else place.parent, os.W_OK)
    return "" if writable else os.strerror(errno.EACCES)
