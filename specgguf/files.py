"""Writing small files."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all, whatever interrupts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
