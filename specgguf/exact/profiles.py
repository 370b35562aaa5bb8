"""What was measured of a target on this machine, remembered on disk."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specgguf.text import jsontext
from specgguf.text.files import write_whole

Fingerprint = Mapping[str, str | int | bool]
"""Everything a measurement depends on, by name."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """A folder of measurements, one file for each fingerprint.

    `digest_of` tells a model file's sha256, however long that takes; `known_digest` only if it takes no time.
    """

    folder: Path
    digest_of: Callable[[Path], str]
    known_digest: Callable[[Path], str | None]

    def load(self, fingerprint: Fingerprint) -> Any:  # noqa: ANN401
        """What was saved under exactly this fingerprint; None if nothing was, or if its file was damaged."""
        try:
            record = jsontext.parse(self._path(fingerprint).read_text(encoding="utf-8"))
            known = record["fingerprint"] == dict(fingerprint) and record["sha256"] == _digest(record["measurement"])
            return record["measurement"] if known else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, fingerprint: Fingerprint, measurement: Any) -> None:  # noqa: ANN401
        """Remember something that JSON can hold; a folder that cannot be written to only forgets."""
        body = json.loads(json.dumps(measurement))  # as it will be read
        record = {"fingerprint": dict(fingerprint), "measurement": body, "sha256": _digest(body)}
        with contextlib.suppress(OSError):
            write_whole(self._path(fingerprint), json.dumps(record, indent=1))

    def _path(self, fingerprint: Fingerprint) -> Path:
        name = hashlib.sha256(json.dumps(dict(fingerprint), sort_keys=True).encode()).hexdigest()
        return self.folder / f"{name}.json"


def _digest(body: Any) -> str:  # noqa: ANN401
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
