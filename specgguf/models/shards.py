"""The parts of a model that is split into several files."""

import mmap
import re
from pathlib import Path

from specgguf.errors import ModelError
from specgguf.headers import gguf

_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
"""llama.cpp's, to the letter: it finds the other parts by the name of the first."""


def check_parts(path: Path, role: str, first: gguf.GgufHeader) -> None:
    """Raises ModelError, with the part that is missing, cut or another model's; nothing to do for a single file."""
    count = first.number("split.count") or 1
    if count <= 1:
        return
    name = _NAME.fullmatch(path.name)
    if not name or int(name[3]) != count or int(name[2]) != 1:
        raise ModelError(
            f"{role} model: {path} is a part of {count}, and llama.cpp does not find the others by its name",
            f"name the parts as they were: ...-00001-of-{count:05d}.gguf and so on, in small letters",
        )
    num_tensors = len(first.tensors)
    for number in range(2, count + 1):
        part = path.with_name(f"{name[1]}-{number:05d}-of-{count:05d}.gguf")
        header, problem = _read(part)
        if header and header.number("split.count") != count:
            problem = "it is no such part of a model"
        elif header and (header.number("split.no") != number - 1 or header.tensors.keys() & first.tensors.keys()):
            problem = "it is of another model"
        if problem:
            raise ModelError(
                f"{role} model: part {number} of {count}, {part}: {problem}", "download or copy that part again"
            )
        num_tensors += len(header.tensors) if header else 0
    if num_tensors != (first.number("split.tensors.count") or num_tensors):
        raise ModelError(
            f"{role} model: the parts beside {path} are not all of the same model", "download or copy them again"
        )


def _read(path: Path) -> tuple[gguf.GgufHeader | None, str]:
    """The header of a part, or what is wrong with it."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = gguf.parse(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
    except FileNotFoundError:
        return None, "there is no such file"
    except OSError as error:
        return None, f"it cannot be read: {error.strerror}"
    except (gguf.TruncatedError, gguf.MalformedError) as error:
        return None, str(error)
    return header, f"it is cut off after {size} bytes" if header.data_end > size else ""
