"""What the shell offers for names of pairs, models and quantizations: nothing while models.toml has a mistake."""

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from specgguf.errors import SpecggufError

if TYPE_CHECKING:
    from specgguf.models.catalogue import Catalogue

Offers = list[tuple[str, str]]
"""Words, and what to say about each."""


def pair_names() -> Offers:
    """Pairs."""
    return [(name, pair.purpose) for name, pair in _catalogue().pairs.items()]


def references(incomplete: str) -> Offers:
    """Models of the catalogue, then the quantizations of one; other programs' models; GGUF files, and folders."""
    from specgguf.models import elsewhere

    name, colon, _ = incomplete.partition(":")
    models = _catalogue().models
    if colon and name in elsewhere.PROGRAMS:
        return [(found.reference, found.remark) for found in elsewhere.models() if not found.problem]
    if colon:
        return [(f"{name}:{quant}", "") for quant in models.get(name, ())]
    programs = {found.reference.partition(":")[0] for found in elsewhere.models()}
    others = [(f"{program}:", "what this program has") for program in elsewhere.PROGRAMS if program in programs]
    return [*((model, ", ".join(quants)) for model, quants in models.items()), *others, *_files(incomplete)]


def pairs_and_references(incomplete: str) -> Offers:
    """What can be pulled."""
    return [*pair_names(), *references(incomplete)]


def target_quants(ctx: typer.Context) -> Offers:
    """Quantizations of the target that is chosen so far."""
    return _quants(ctx, "target")


def draft_quants(ctx: typer.Context) -> Offers:
    """Quantizations of the draft that is chosen so far."""
    return _quants(ctx, "draft")


def _quants(ctx: typer.Context, role: str) -> Offers:
    catalogue = _catalogue()
    pair = catalogue.pairs.get(ctx.params.get("pair") or catalogue.default)
    model, _, _ = str(ctx.params.get(role) or getattr(pair, role, "")).partition(":")
    return [(quant, "") for quant in catalogue.models.get(model, ())]


def _files(incomplete: str) -> Iterator[tuple[str, str]]:
    """Files and folders that begin like this, as the user writes them."""
    folder, slash, start = incomplete.rpartition("/")
    for path in _entries(Path(folder + slash).expanduser()):
        if path.name.startswith(start) and (start or not path.name.startswith(".")):
            if path.is_dir():
                yield f"{folder}{slash}{path.name}/", ""
            elif path.suffix.lower() == ".gguf":
                yield f"{folder}{slash}{path.name}", ""


def _entries(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


@functools.cache
def _catalogue() -> "Catalogue":
    from specgguf.models.catalogue import Catalogue, load_catalogue
    from specgguf.models.locations import config_file

    try:
        return load_catalogue(config_file("models.toml"))
    except SpecggufError:
        return Catalogue("", {}, {})
