"""From the options that name models to an engine."""

from pathlib import Path
from typing import TYPE_CHECKING

from specgguf.cli import output
from specgguf.cli.options import Speculate
from specgguf.errors import UsageError

if TYPE_CHECKING:
    from specgguf.config import Catalogue
    from specgguf.engine import Engine, EngineSettings
    from specgguf.hub.store import Store


def open_store() -> "Store":
    """The store of model files, showing its progress on the terminal."""
    from specgguf.hub.store import Store, default_root
    from specgguf.llama.quantize import quantize

    return Store(default_root(), output.TerminalProgress(), quantize)


def open_engine(
    store: "Store",
    pair: str | None,
    target: str | None,
    draft: str | None,
    speculate: Speculate,
    settings: "EngineSettings",
) -> "Engine":
    """Find or fetch the models that the options name, and load them."""
    from specgguf.config import load_catalogue
    from specgguf.engine import Engine
    from specgguf.hub.resolve import resolve

    catalogue = load_catalogue()
    references = _references(catalogue, pair, target, draft)
    if speculate is Speculate.OFF:
        del references[1:]
    elif len(references) == 1:
        output.note("decoding plainly: there is no --draft for this --target")
    found = [resolve(reference, catalogue) for reference in references]
    paths: list[Path] = store.provide(found)
    return Engine(paths[0], paths[1] if len(paths) > 1 else None, settings)


def _references(catalogue: "Catalogue", pair: str | None, target: str | None, draft: str | None) -> list[str]:
    """The target's, then the draft's if there is one."""
    if target is None:
        chosen = catalogue.pair(pair)
        return [chosen.target, draft or chosen.draft]
    if pair is not None:
        raise UsageError("--pair and --target exclude each other", "give one of them")
    return [target] if draft is None else [target, draft]
