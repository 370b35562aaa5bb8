"""What tells one model file from another in no time."""

import hashlib
import os
from pathlib import Path

_BLOCK = 4096
_BLOCKS = 64


def fingerprint(path: Path) -> str:
    """A hash of a file's size and of samples from its beginning to its end, 16 hexadecimal digits.

    Other weights have another one, wherever the file is and whatever it is called. Raises OSError if it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(size.to_bytes(8, "little"))
        last = max(0, size - _BLOCK)
        for place in sorted({last * number // (_BLOCKS - 1) for number in range(_BLOCKS)}):
            file.seek(place)
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()[:16]
