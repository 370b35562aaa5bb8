"""models.toml: known models, their files, and pairs of them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from specgguf.errors import ConfigError, UnknownQuantError
from specgguf.models.files import DerivedFile, FieldError, HubFile, ModelFile, SplitFile, WheelMirror
from specgguf.models.names import PREFERRED
from specgguf.text.suggestions import suggest
from specgguf.text.tomlfile import TomlFile, Where

_PACKAGE = Path(__file__).parents[1]
_SHIPPED = (_PACKAGE / "models.toml", _PACKAGE.parent / "models.toml")
"""In the installed package, and beside it in a checkout."""

_HELP = "docs/models.md shows what it may contain"
_LIST = "specgguf pairs lists known models"
_TOP_KEYS = ("default", "pairs", "models")
_PAIR_KEYS = ("target", "draft", "purpose", "draft_max")
_FILE_KEYS = ("repo", "revision", "path", "size", "sha256", "parts", "derived_from", "licence", "mirrors")
_DERIVED_KEYS = ("derived_from", "licence")
_PART_KEYS = ("path", "size", "sha256")
_MIRROR_KEYS = ("type", "package", "version", "member", "part_size")


@dataclass(frozen=True, slots=True)
class Pair:
    """References of a target and its draft, as in `Catalogue.file`, and what the pair is good for.

    The references name the quantizations we recommend. They are the same where MTP layers inside the target's file
    draft. `draft_max` limits the draft tokens per round; None is the usual limit.
    """

    target: str
    draft: str
    purpose: str
    draft_max: int | None

    @property
    def is_one_file(self) -> bool:
        """Whether the draft is inside the target's file, and needs nothing more."""
        return self.draft == self.target


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything models.toml names."""

    default: str
    pairs: Mapping[str, Pair]
    models: Mapping[str, Mapping[str, ModelFile]]
    """Files by model name and quantization."""

    def pair(self, name: str | None) -> Pair:
        """The pair of that name, or the default pair for None. Raises ConfigError for an unknown name."""
        name = self.default if name is None else name
        if name not in self.pairs:
            hint = f"{name} is a model: use --target" if name in self.models else suggest(name, self.pairs, _LIST)
            raise ConfigError(f"unknown pair: {name}", hint)
        return self.pairs[name]

    def file(self, reference: str) -> ModelFile:
        """The file that `reference`, MODEL or MODEL:QUANT, stands for.

        Without QUANT it is the quantization that a pair recommends, else the first of PREFERRED that there is, else
        the only one. Raises ConfigError for an unknown model, UnknownQuantError for a quantization it does not have.
        """
        name, _, quant = reference.partition(":")
        if name not in self.models:
            hint = suggest(name, self.models, _LIST)
            if name in self.pairs:
                hint = f"{name} is a pair: use --pair, or give its target, {self.pairs[name].target}"
            raise ConfigError(f"neither a file nor a known model: {reference}", hint)
        files = self.models[name]
        for wanted in [quant] if quant else [*self._recommended(name), *PREFERRED, *(files if len(files) == 1 else ())]:
            for known, file in files.items():
                if known.lower() == wanted.lower():
                    return file
        listed = ", ".join(f"{name}:{known}{_size(file)}" for known, file in files.items())
        if quant:
            raise UnknownQuantError(f"{name} has no quantization {quant}", f"choose from {listed}")
        raise ConfigError(f"{name} has several quantizations", f"choose from {listed}")

    def _recommended(self, model: str) -> list[str]:
        """The quantizations of `model` that pairs use, in the catalogue's order."""
        named = [reference.partition(":") for pair in self.pairs.values() for reference in (pair.target, pair.draft)]
        return [quant for name, _, quant in named if name == model and quant]


def load_catalogue(own: Path | None) -> Catalogue:
    """The catalogue that comes with specgguf, extended and overridden by the user's `own` file if that exists.

    Raises ConfigError, with line and key, for a mistake.
    """
    default = ""
    pairs: dict[str, Pair] = {}
    models: dict[str, dict[str, ModelFile]] = {}
    shipped = next(path for path in _SHIPPED if path.exists())
    for source in (TomlFile(path, _HELP) for path in (shipped, *([own] if own and os.path.lexists(own) else []))):
        top = source.table((), source.root, _TOP_KEYS)
        default = source.get(("default",), {"default": default, **top}, str)
        for name, files in source.table(("models",), top.get("models", {})).items():
            models[name] = _files(source, name, files, models.get(name, {}))
        for name, entry in source.table(("pairs",), top.get("pairs", {})).items():
            pairs[name] = _pair(source, ("pairs", name), entry)
        catalogue = Catalogue(default, pairs, models)
        for name in top.get("pairs", {}):
            for role in ("target", "draft"):
                try:
                    catalogue.file(getattr(pairs[name], role))
                except (ConfigError, UnknownQuantError) as error:
                    hint = f"{error.hint}; a table with derived_from adds another quantization"
                    raise source.mistake(("pairs", name, role), error.message, hint) from None
        if default not in pairs:
            raise source.mistake(("default",), f"there is no pair {default!r}")
    return catalogue


def _pair(source: TomlFile, where: Where, entry: Any) -> Pair:  # noqa: ANN401
    entry = source.table(where, entry, _PAIR_KEYS)
    draft_max = source.get((*where, "draft_max"), entry, int) if "draft_max" in entry else None
    if draft_max is not None and draft_max < 1:
        raise source.mistake((*where, "draft_max"), "must be positive")
    purpose = source.get((*where, "purpose"), {"purpose": "", **entry}, str)
    if not purpose.isprintable():
        raise source.mistake((*where, "purpose"), "must be one line of printable text")
    return Pair(
        target=source.get((*where, "target"), entry, str),
        draft=source.get((*where, "draft"), entry, str),
        purpose=purpose,
        draft_max=draft_max,
    )


def _files(source: TomlFile, model: str, entries: Any, known: Mapping[str, ModelFile]) -> dict[str, ModelFile]:  # noqa: ANN401
    """The files of a model by quantization: those already `known`, extended and overridden by `entries`."""
    if ":" in model:
        raise source.mistake(("models", model), "a name must not have a colon")
    files = dict(known)
    derived: dict[str, str] = {}
    for quant, entry in source.table(("models", model), entries).items():
        where = ("models", model, quant)
        if "derived_from" in source.table(where, entry, _FILE_KEYS):
            source.table(where, entry, _DERIVED_KEYS)
            derived[quant] = source.get((*where, "derived_from"), entry, str)
        elif "parts" in entry:
            parts = source.get((*where, "parts"), entry, list)
            shared = {key: value for key, value in entry.items() if key not in _PART_KEYS}
            places = [(*where, "parts", index) for index in range(len(parts))]
            tables = [{**shared, **source.table(*found, _PART_KEYS)} for found in zip(places, parts, strict=True)]
            files[quant] = SplitFile(tuple(map(_hub_file, repeat(source), places, tables)))
        else:
            files[quant] = _hub_file(source, where, entry)
    for quant, name in derived.items():
        origin = files.get(name)
        if not isinstance(origin, HubFile | SplitFile):
            raise source.mistake(("models", model, quant, "derived_from"), f"{model} has no {name} to download")
        files[quant] = DerivedFile(origin, quant)
    return files


def _hub_file(source: TomlFile, where: Where, entry: Mapping[str, Any]) -> HubFile:
    mirrors = []
    for index, mirror in enumerate(source.get((*where, "mirrors"), {"mirrors": [], **entry}, list)):
        inside = (*where, "mirrors", index)
        source.table(inside, mirror, _MIRROR_KEYS)
        texts = {key: source.get((*inside, key), mirror, str) for key in _MIRROR_KEYS[:-1]}
        if texts.pop("type") != "wheel":
            raise source.mistake((*inside, "type"), "the only type of mirror is 'wheel'")
        mirrors.append(WheelMirror(**texts, part_size=source.get((*inside, "part_size"), mirror, int)))
    texts = {key: source.get((*where, key), entry, str) for key in ("repo", "revision", "path", "sha256")}
    size = source.get((*where, "size"), entry, int)
    try:
        return HubFile(**texts, size=size, mirrors=tuple(mirrors))
    except FieldError as error:
        raise source.mistake((*where, error.field), error.problem) from None


def _size(file: ModelFile) -> str:
    size = sum(part.size for part in file.hub_files)
    return "" if isinstance(file, DerivedFile) else f" ({size / 1e9:.1f} GB)"
