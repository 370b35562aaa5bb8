"""From the options that name models to an engine."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specgguf.cli.terminal import output
from specgguf.engine.settings import EngineSettings
from specgguf.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from specgguf.engine.engine import Engine
    from specgguf.exact.profiles import Profiles
    from specgguf.models.catalogue import Catalogue, Pair
    from specgguf.models.files import ModelFile
    from specgguf.models.hub.store import Store
    from specgguf.models.references import Resolver


class Models(NamedTuple):
    """The options that name a target and a draft."""

    pair: str | None
    target: str | None
    draft: str | None
    quant: str | None
    draft_quant: str | None

    def resolve(self, resolver: "Resolver", role: str) -> "Path | ModelFile | None":
        """The target, or the draft if one is named."""
        reference, quant = (self.target, self.quant) if role == "target" else (self.draft, self.draft_quant)
        if reference is None:
            pair = self.chosen_pair(resolver.catalogue)
            if pair is None:
                return None
            reference = getattr(pair, role)
            if quant:  # instead of the recommended one
                reference = reference.partition(":")[0]
        return resolver.resolve(reference, quant, as_draft=role == "draft")

    def chosen_pair(self, catalogue: "Catalogue") -> "Pair | None":
        """The pair that is named, or the default pair; None for a target of the user's own."""
        if self.target is None:
            return catalogue.pair(self.pair)
        if self.pair is not None:
            raise UsageError("--pair and --target exclude each other", "give one of them")
        return None


def open_store(offline: bool = False) -> "Store":
    """The store of model files, showing its progress on the terminal."""
    # Read when the hub's library is imported.
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    else:
        os.environ.pop("HF_HUB_OFFLINE", None)
    from specgguf.models.hub.store import Store, default_root

    return Store(default_root(), output.TerminalProgress(), _quantize, offline)


def open_resolver(store: "Store") -> "Resolver":
    """What gives references their meaning: the catalogue, and what is pinned in the store."""
    from specgguf.models.catalogue import load_catalogue, own_path
    from specgguf.models.references import Resolver

    return Resolver(load_catalogue(own_path()), store, _can_make)


def open_engine(store: "Store", models: Models, settings: EngineSettings) -> "Engine":
    """Find or fetch the models that the options name, and load them."""
    from specgguf.engine.engine import Engine
    from specgguf.llama.library import on_abort

    on_abort(lambda reason: output.error(f"llama.cpp gave up: {reason}", "is one of the model files damaged?"))
    resolver = open_resolver(store)
    pair = models.chosen_pair(resolver.catalogue)
    target = models.resolve(resolver, "target")
    draft = models.resolve(resolver, "draft") if settings.mode.uses_model else None
    if draft is not None and models.draft is None and models.draft_quant is None:
        draft = advised(store, draft)
    target_path, *rest = store.provide([file for file in (target, draft) if file is not None])
    draft_path, notice = (rest[0] if rest else None), None
    if draft_path is None and settings.mode.uses_model:
        draft_path, notice = _find_draft(target_path, resolver.catalogue, store)
    if pair and settings.num_draft is None:
        settings = replace(settings, num_draft=pair.draft_max)
    with closing(store.progress):
        engine = Engine(target_path, draft_path, settings, open_profiles(store), store.progress.show)
    if notice:
        engine.notices.append(notice)
    return engine


def explain(engine: "Engine") -> None:
    """Tell the settings in effect, and from now on every change of mind about drafting, a line each."""
    output.log("".join(f"{line}\n" for line in engine.describe()))
    engine.on_change = lambda line: output.log(f"drafts: {line}\n")


def check_adaptive(engine: "Engine") -> None:
    """Tell what the user should know; raises UsageError for a target that nothing can be drafted for."""
    for line in engine.notices:
        output.note(line)
    if not engine.adaptive:
        raise UsageError(
            f"{engine.target_header.path}: the cache of such a model cannot be rolled back yet, so nothing is drafted",
            "choose another target",
        )


def advised(store: "Store", draft: "Path | ModelFile") -> "Path | ModelFile":
    """A draft as `tune` found it to be faster on this machine, if it did and that is still there."""
    from specgguf.measure.tune import advice_key
    from specgguf.models.files import DerivedFile

    path = None if isinstance(draft, DerivedFile) else store.find(draft)
    if path is None or isinstance(draft, DerivedFile):
        return draft
    advice = open_profiles(store).load(advice_key(store.digests.of(path)))
    better = DerivedFile(draft, advice["quant"], as_draft=True) if advice else None
    return better if better and store.find(better) else draft


def open_profiles(store: "Store") -> "Profiles":
    """What was measured on this machine."""
    from specgguf.exact.profiles import Profiles

    return Profiles(store.root / "profiles", store.digests.of, store.digests.known)


def _find_draft(target: Path, catalogue: "Catalogue", store: "Store") -> tuple[Path | None, str]:
    """A draft on this machine that fits, and what to tell the user about it."""
    from specgguf.models.header import Header
    from specgguf.models.pairing import draft_on_disk

    found = draft_on_disk(Header.of_file(target, "target"), catalogue, store)
    if found is None:
        return None, "no draft model: there is no --draft, and none on this machine fits and is small enough"
    return found.path, f"drafting with {found.reference}, which fits and is on this machine (--draft chooses another)"


# llama.cpp takes 0.15 s to import: only when something is requantized.


def _quantize(
    source: Path, destination: Path, quant: str, narrowed: bool, on_progress: "Callable[[int, int], object]"
) -> None:
    from specgguf.llama.quantize import quantize

    quantize(source, destination, quant, narrowed, on_progress)


def _can_make(quant: str) -> bool:
    from specgguf.llama.quantize import known_quants

    return quant in known_quants()
