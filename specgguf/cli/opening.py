"""From options to an engine."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specgguf.cli.options.drafting import Drafting
from specgguf.cli.options.models import NO_DRAFT, Models
from specgguf.cli.options.resources import Resources
from specgguf.cli.terminal import output
from specgguf.cli.terminal.progress import TerminalProgress
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.errors import about

if TYPE_CHECKING:
    from collections.abc import Callable

    from specgguf.engine.engine import Engine
    from specgguf.exact.profiles import Profiles
    from specgguf.models.catalogue import Catalogue
    from specgguf.models.files import ModelFile
    from specgguf.models.hub.store import Store
    from specgguf.models.references import Resolver


def engine_settings(
    drafting: Drafting, resources: Resources, usual_ctx: int | None = None, chat_template: str | None = None
) -> EngineSettings:
    """The settings that the options ask for; the last two as in `EngineSettings`."""
    return EngineSettings(
        n_gpu_layers=resources.gpu_layers,
        draft_n_gpu_layers=resources.draft_gpu_layers,
        n_threads=resources.threads,
        n_ctx=resources.ctx,
        draft_n_ctx=resources.draft_ctx,
        usual_ctx=usual_ctx,
        chat_template=chat_template,
        cache_type_k=resources.cache_type_k,
        cache_type_v=resources.cache_type_v,
        num_draft=drafting.draft_max,
        mode=drafting.speculate,
        exact=drafting.exact,
    )


def open_store(offline: bool = False) -> "Store":
    """The store of model files, showing its progress on the terminal."""
    # Read when the hub's library is imported.
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    else:
        os.environ.pop("HF_HUB_OFFLINE", None)
    from specgguf.models.hub.store import Store
    from specgguf.models.locations import store_folder

    return Store(store_folder(), TerminalProgress(), _quantize, offline)


def open_resolver(store: "Store") -> "Resolver":
    """What finds the files that references mean: in the catalogue, and among what is pinned in the store."""
    from specgguf.models.catalogue import load_catalogue
    from specgguf.models.locations import config_file
    from specgguf.models.references import Resolver

    return Resolver(load_catalogue(config_file("models.toml")), store, _can_make)


def open_engine(
    store: "Store",
    models: Models,
    settings: EngineSettings,
    may_draft: "Callable[[Path, Path | None], bool]" = lambda *_: True,
) -> "Engine":
    """Find or fetch the models that the options name, and load them, a draft only if it `may_draft` for the target."""
    from specgguf.engine.engine import Engine

    explain_aborts()
    resolver = open_resolver(store)
    pair = models.chosen_pair(resolver.catalogue)
    target = models.resolve(resolver, "target")
    if models.draft == NO_DRAFT:
        settings = replace(settings, own_heads=False)
    drafts = settings.mode.uses_model and models.draft != NO_DRAFT
    draft = models.resolve(resolver, "draft") if drafts else None
    if models.draft_quant and draft is None and (drafts or models.draft == NO_DRAFT):
        output.note(f"--draft-quant {models.draft_quant} has no effect: no draft is named (--draft REF does)")
    if draft is not None and models.draft is None and models.draft_quant is None:
        draft = tuned_draft(store, draft)
    target_path, *rest = store.provide([file for file in (target, draft) if file is not None])
    draft_path, notice = (rest[0] if rest else None), None
    if draft_path is None and drafts:
        draft_path, notice = find_draft(target_path, resolver.catalogue, store)
    if settings.mode is not Mode.OFF and not may_draft(target_path, draft_path):
        settings, draft_path, notice = replace(settings, mode=Mode.OFF), None, None
    if pair and settings.num_draft is None:
        settings = replace(settings, num_draft=pair.draft_max)

    def show_notice(line: str) -> None:
        store.progress.close()  # a line in the middle of a bar cannot be read
        output.note(line)

    with closing(store.progress):
        engine = Engine(target_path, draft_path, settings, open_profiles(store), store.progress.show, show_notice)
    if notice:
        output.note(notice)
    return engine


def explain_aborts() -> None:
    """Should llama.cpp end the process from now on, it ends like any failure."""
    from specgguf.llama.library import on_abort

    on_abort(lambda reason: output.error(f"llama.cpp gave up: {reason}", "is one of the model files damaged?"))


def log_engine(engine: "Engine") -> None:
    """Log the settings in effect, and from now on in a line each whether drafting is given up or taken up again."""
    output.log("".join(f"{line}\n" for line in engine.describe()))
    engine.on_change = lambda line: output.log(f"drafts: {line}\n")


def tuned_draft(store: "Store", draft: "Path | ModelFile") -> "Path | ModelFile":
    """The requantized draft that `tune` found to be faster on this machine, if it is still there; else `draft`."""
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


def find_draft(target: Path, catalogue: "Catalogue", store: "Store") -> tuple[Path | None, str]:
    """A draft on this machine that fits, and what to tell the user about it."""
    from specgguf.headers.heads import num_nextn_layers
    from specgguf.models.header import ModelHeader
    from specgguf.models.pairing import draft_on_disk

    with about("target"):
        header = ModelHeader.of_file(target, "target")
    found = draft_on_disk(header, catalogue, store)
    if found is None and num_nextn_layers(header.gguf):
        return None, ""
    if found is None:
        return None, "no draft model: there is no --draft, and none on this machine fits and is small enough"
    return found.path, f"drafting with {found.reference}, which fits and is on this machine (--draft chooses another)"


# llama.cpp takes 0.15 s to import: only when something is requantized.


def _quantize(
    source: Path, destination: Path, quant: str, same_output_type: bool, on_progress: "Callable[[int, int], object]"
) -> None:
    from specgguf.llama.quantize import quantize

    quantize(source, destination, quant, same_output_type, on_progress)


def _can_make(quant: str) -> bool:
    from specgguf.llama.quantize import known_quants

    return quant in known_quants()
