"""What references to the hub meant when they were first used."""

import contextlib
import json
from pathlib import Path
from typing import Any

from specgguf.errors import ConfigError
from specgguf.models.files import HubFile, ModelFile, SplitFile
from specgguf.text import jsontext
from specgguf.text.files import write_whole

_FIELDS = ("repo", "revision", "path", "size", "sha256")


class Pins:
    """A lock file: it pins references outside the catalogue to a revision and a sha256, so they never change meaning.

    Every method raises ConfigError if the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, reference: str) -> ModelFile | None:
        """The file that `reference` is pinned to, if it is."""
        parts = self._read().get(reference)
        if parts is None:
            return None
        try:
            files = tuple(HubFile(**part) for part in parts)
        except (TypeError, ValueError) as error:
            raise self._damaged(error) from None
        return files[0] if len(files) == 1 else SplitFile(files)

    def put(self, reference: str, file: HubFile | SplitFile) -> None:
        """Pin `reference` to `file`."""
        pinned = [{name: getattr(part, name) for name in _FIELDS} for part in file.hub_files]
        with contextlib.suppress(OSError):  # a read-only folder only forgets
            write_whole(self._path, json.dumps({**self._read(), reference: pinned}, indent=1))

    def _read(self) -> dict[str, list[dict[str, Any]]]:
        if not self._path.exists():
            return {}
        try:
            entries: dict[str, list[dict[str, Any]]] = jsontext.parse(self._path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise self._damaged(error) from None
        if not isinstance(entries, dict):
            raise self._damaged("it is not a JSON object")
        return entries

    def _damaged(self, reason: object) -> ConfigError:
        return ConfigError(f"{self._path} is damaged: {reason}", "delete it; references are then pinned anew")
