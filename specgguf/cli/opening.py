"""From the options that name models to an engine."""

from pathlib import Path
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
    target_path, *rest = store.provide([resolver.resolve(name) for name in names])
    draft_path, notice = (rest[0] if rest else None), None
    if draft_path is None and speculate is not Speculate.OFF:
        draft_path, notice = _find_draft(target_path, resolver.catalogue, store)
    engine = Engine(target_path, draft_path, settings)
    if notice:
        engine.notices.append(notice)
    return engine


def _find_draft(target: Path, catalogue: "Catalogue", store: "Store") -> tuple[Path | None, str]:
    """A draft on this machine that fits, and what to tell the user about it."""
    from specgguf.header import Header
    from specgguf.hub.pairing import draft_on_disk

    found = draft_on_disk(Header.of_file(target, "target"), catalogue, store)
    if found is None:
        return None, "no drafts: there is no --draft, and none that fits is on this machine"
    return found.path, f"drafting with {found.reference}, which fits and is on this machine (--draft chooses another)"


def references(catalogue: "Catalogue", pair: str | None, target: str | None, draft: str | None) -> list[str]:
    """References to the target, then to the draft if there is one, that the options name."""
    if target is None:
        chosen = catalogue.pair(pair)
        return [chosen.target, draft or chosen.draft]
    if pair is not None:
        raise UsageError("--pair and --target exclude each other", "give one of them")
    return [target] if draft is None else [target, draft]
