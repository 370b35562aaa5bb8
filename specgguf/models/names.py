"""What the names of GGUF files in a repository tell: quantization, parts, and which files are models or draft heads."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

PREFERRED = ("Q4_K_M", "Q8_0")
"""The quantizations to look for, in this order, if none is named."""

_QUANT = r"(?:UD-)?(?:I?Q[1-8](?:_[0-9A-Z]+)*|TQ[12]_0|BF16|F16|F32|FP16|MXFP4(?:_MOE)?|NVFP4)"
_AT_END = re.compile(rf"(?:^|[-._])(?:i1-)?({_QUANT})$", re.IGNORECASE)  # i1: made with an importance matrix
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})$")
_HEAD = re.compile(r"(?:^mtp|(?:^|[-_.])(?:eagle\d*|dflash\d*|dspark\d*))(?:[-_.]|$)", re.IGNORECASE)
_WITH_MTP = re.compile(r"[-_.]mtp(?:[-_.]|$)", re.IGNORECASE)
"""Most often a model with MTP layers inside, sometimes a head: not taken if there is anything else."""
_NEITHER = re.compile(r"(?:^|[-_.])(?:mmproj|imatrix)(?:[-_.]|$)", re.IGNORECASE)


class ChoiceError(LookupError):
    """No model, or more than one, fits the request; the text says what there is."""


class NoSuchQuantError(ChoiceError):
    """No file has the quantization wanted."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A model in a repository: one file, or several `parts` in their order."""

    name: str
    quant: str | None
    parts: tuple[str, ...]
    missing: tuple[int, ...] = ()
    """Numbers of the parts that are not in the repository."""


def variants(paths: Iterable[str]) -> list[Variant]:
    """The models among the files of a repository, in order of their names.

    Files that no text can be generated with are left out: mmproj, imatrix, and heads such as EAGLE-3.
    """
    named = {path: name for path, name in _names(paths).items() if not _HEAD.search(name)}
    return _grouped([path for path, name in named.items() if not _WITH_MTP.search(name)] or named)


def _names(paths: Iterable[str]) -> dict[str, str]:
    """The files with weights, and their names without folders and ending."""
    names = {path: path.removesuffix(".gguf").rpartition("/")[2] for path in paths if path.endswith(".gguf")}
    return {path: name for path, name in names.items() if not _NEITHER.search(name)}


def _grouped(paths: Iterable[str]) -> list[Variant]:
    groups: dict[tuple[str, int], dict[int, str]] = {}
    for path in paths:
        stem = path.removesuffix(".gguf")
        split = _SPLIT.search(stem)
        number, count = (int(split[1]), int(split[2])) if split else (1, 1)
        groups.setdefault((stem[: split.start()] if split else stem, count if split else 0), {})[number] = path
    found = []
    for (stem, count), parts in sorted(groups.items()):
        numbers = range(1, max(count, 1) + 1)
        missing = tuple(number for number in numbers if number not in parts)
        paths_in_order = tuple(parts[number] for number in sorted(parts))
        found.append(Variant(stem.rpartition("/")[2], _quant(stem), paths_in_order, missing))
    return found


def choose(files: Mapping[str, int], wanted: str | None = None) -> Variant:
    """Choose a model from `files` (sizes in bytes by path).

    `wanted` is a quantization, the path of a .gguf file (any part), or None. None takes the first of PREFERRED that
    there is, else the only model. Case does not matter in quantizations. A single file is preferred to a split one.
    Raises NoSuchQuantError or ChoiceError.
    """
    return _choose(variants(files), files, wanted)


def choose_head(files: Mapping[str, int], wanted: str | None = None) -> Variant:
    """Choose a draft head in the same way, or a model if there is no head, or none in the quantization wanted."""
    heads = _grouped(path for path, name in _names(files).items() if _HEAD.search(name))
    if not heads or (wanted is not None and wanted.lower().endswith(".gguf")):
        return choose(files, wanted)
    try:
        return _choose(heads, files, wanted)
    except NoSuchQuantError as error:
        with suppress(ChoiceError):
            return choose(files, wanted)
        raise error from None


def _choose(known: Sequence[Variant], files: Mapping[str, int], wanted: str | None) -> Variant:
    if wanted is not None and wanted.lower().endswith(".gguf"):
        return _by_path(files, known, wanted)
    if not known:
        raise ChoiceError("it has no model in GGUF format")
    if wanted is not None:
        if not (matches := _of_quant(known, wanted)):
            raise NoSuchQuantError(f"it has no {wanted}; choose from {_listed(known, files)}")
        return _only(matches, files)
    for quant in PREFERRED:
        if matches := _of_quant(known, quant):
            return _only(matches, files)
    return _only(known, files)


def _quant(stem: str) -> str | None:
    folder, _, name = stem.rpartition("/")
    found = _AT_END.search(name) or _AT_END.search(folder)
    return found[1].upper() if found else None


def _of_quant(known: Sequence[Variant], quant: str) -> list[Variant]:
    matches = [variant for variant in known if variant.quant == quant.upper()]
    return [variant for variant in matches if len(variant.parts) == 1 and not variant.missing] or matches


def _by_path(files: Mapping[str, int], known: Sequence[Variant], wanted: str) -> Variant:
    for variant in known:
        if wanted in variant.parts:
            return _whole(variant)
    if wanted in files:  # its name is not that of a model, but the user knows better
        return Variant(wanted.rpartition("/")[2].removesuffix(".gguf"), _quant(wanted.removesuffix(".gguf")), (wanted,))
    if not known:
        raise ChoiceError("it has no model in GGUF format")
    raise ChoiceError(f"it has no {wanted}; choose from {', '.join(variant.parts[0] for variant in known)}")


def _only(matches: Sequence[Variant], files: Mapping[str, int]) -> Variant:
    if len(matches) > 1:
        raise ChoiceError(f"it has several models; choose from {_listed(matches, files)}")
    return _whole(matches[0])


def _whole(variant: Variant) -> Variant:
    if variant.missing:
        raise ChoiceError(f"{variant.name} is incomplete, missing parts: {', '.join(map(str, variant.missing))}")
    return variant


def _listed(known: Sequence[Variant], files: Mapping[str, int]) -> str:
    quants = [variant.quant for variant in known]
    names = [v.quant if v.quant and quants.count(v.quant) == 1 else v.parts[0] for v in known]
    sizes = [sum(files[path] for path in variant.parts) for variant in known]
    return ", ".join(f"{name} ({size / 1e9:.1f} GB)" for name, size in zip(names, sizes, strict=True))
