"""From the options that name models to an engine."""

from typing import TYPE_CHECKING

from specgguf.cli import output
from specgguf.cli.options import Speculate
from specgguf.errors import UsageError

if TYPE_CHECKING:
    from specgguf.config import Catalogue
    from specgguf.engine import Engine, EngineSettings
    from specgguf.hub.resolve import Resolver
    from specgguf.hub.store import Store


def open_store() -> "Store":
    """The store of model files, showing its progress on the terminal."""
    from specgguf.hub.store import Store, default_root
    from specgguf.llama.quantize import quantize

    return Store(default_root(), output.TerminalProgress(), quantize)


def open_resolver(store: "Store") -> "Resolver":
    """What gives references their meaning: the catalogue, and what is pinned in the store."""
    from specgguf.config import load_catalogue
    from specgguf.hub.lock import Lock
    from specgguf.hub.resolve import Resolver

    return Resolver(load_catalogue(), Lock(store.root / "lock.json"))


def open_engine(
    store: "Store",
    pair: str | None,
    target: str | None,
    draft: str | None,
    speculate: Speculate,
    settings: "EngineSettings",
) -> "Engine":
    """Find or fetch the models that the options name, and load them."""
    from specgguf.engine import Engine
    from specgguf.llama.library import on_abort

    on_abort(lambda reason: output.error(f"llama.cpp gave up: {reason}", "is one of the model files damaged?"))
    resolver = open_resolver(store)
    names = references(resolver.catalogue, pair, target, draft)
    if speculate is Speculate.OFF:
        del names[1:]
    target_path, *draft_path = store.provide([resolver.resolve(name) for name in names])
    engine = Engine(target_path, draft_path[0] if draft_path else None, settings)
    if speculate is not Speculate.OFF and not draft_path:
        engine.notices.append("no drafts: there is no --draft for this --target")
    return engine


def references(catalogue: "Catalogue", pair: str | None, target: str | None, draft: str | None) -> list[str]:
    """References to the target, then to the draft if there is one, that the options name."""
    if target is None:
        chosen = catalogue.pair(pair)
        return [chosen.target, draft or chosen.draft]
    if pair is not None:
        raise UsageError("--pair and --target exclude each other", "give one of them")
    return [target] if draft is None else [target, draft]
