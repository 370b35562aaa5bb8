"""Folders of the user's that specgguf reads and writes."""

import os
from pathlib import Path

import platformdirs

NOWHERE = Path(os.devnull, "specgguf")
"""Stands for folders in the home of a user who has none: nothing is there, and nothing can be put there."""


def config_file(name: str) -> Path:
    """Where the user's own `name` (config.toml, models.toml) belongs; it need not exist."""
    try:
        return platformdirs.user_config_path("specgguf") / name
    except RuntimeError:
        return NOWHERE / name


def journal_file() -> Path:
    """Where the journal belongs: in the user's state folder; it need not exist."""
    try:
        return platformdirs.user_state_path("specgguf") / "journal.db"
    except RuntimeError:
        return NOWHERE / "journal.db"


def store_folder() -> Path:
    """`SPECGGUF_HOME`, or the user's cache folder: for model files and what was measured."""
    home = os.environ.get("SPECGGUF_HOME")
    try:
        return Path(home).expanduser() if home else platformdirs.user_cache_path("specgguf")
    except RuntimeError:
        return NOWHERE
