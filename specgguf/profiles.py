"""What was measured of a target on this machine, remembered on disk."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specgguf.core.bitclasses import Measurement
from specgguf.files import write_whole

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

    def load(self, fingerprint: Fingerprint) -> Measurement | None:
        """The measurement of exactly this fingerprint; None if there is none, or if its file was damaged."""
        try:
            record = json.loads(self._path(fingerprint).read_text(encoding="utf-8"))
            body = record["measurement"]
            if record["fingerprint"] != dict(fingerprint) or record["sha256"] != _digest(body):
                return None
            classes = tuple(tuple(int(width) for width in group) for group in body["classes"])
            return Measurement(classes, {int(width): float(time) for width, time in body["seconds"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def save(self, fingerprint: Fingerprint, measurement: Measurement) -> None:
        """Remember it; a folder that cannot be written to only forgets."""
        body = {"classes": measurement.classes, "seconds": measurement.seconds}
        body = json.loads(json.dumps(body))  # as it will be read
        record = {"fingerprint": dict(fingerprint), "measurement": body, "sha256": _digest(body)}
        path = self._path(fingerprint)
        try:
            write_whole(path, json.dumps(record, indent=1))
        except OSError:
            return

    def _path(self, fingerprint: Fingerprint) -> Path:
        name = hashlib.sha256(json.dumps(dict(fingerprint), sort_keys=True).encode()).hexdigest()
        return self.folder / f"{name}.json"


def _digest(body: Any) -> str:  # noqa: ANN401
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
