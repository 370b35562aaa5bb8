"""`specgguf tune`: measure what batches cost, remember it, and say what would be faster."""

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli.opening import (
    engine_settings,
    open_engine,
    open_profiles,
    open_resolver,
    open_store,
    tuned_draft,
)
from specgguf.cli.options.drafting import Drafting
from specgguf.cli.options.groups import grouped, without
from specgguf.cli.options.models import Models, Offline
from specgguf.cli.options.output import Json
from specgguf.cli.options.resources import Resources
from specgguf.cli.terminal import output
from specgguf.engine.settings import EngineSettings
from specgguf.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specgguf.engine.engine import Engine
    from specgguf.measure.tune import Tuned
    from specgguf.models.files import HubFile, SplitFile
    from specgguf.models.hub.store import Store

_FAST_QUANT = "Q4_0"
"""The quantization that llama.cpp has the fastest kernels for on most processors."""


@grouped
def tune(
    models: Models,
    quants: Annotated[
        bool, typer.Option("--quants", help="Compare the target's quantizations instead: which is the fastest here?")
    ] = False,
    *,
    resources: Annotated[Resources, without("ctx", "draft_ctx")],
    offline: Offline = False,
    yes: Annotated[bool, typer.Option("--yes", help="Make a faster draft without asking.")] = False,
    json: Json = False,
) -> None:
    """Measure what a batch costs by its width on this machine, and remember it, so that drafting starts well informed.

    Run nothing else meanwhile. It also finds out whether the draft would be faster requantized, and offers to do that.
    """
    settings = replace(engine_settings(Drafting(), resources), num_parallel=None)
    store = open_store(offline)
    if quants:
        _compare_quants(store, models, settings, json)
    else:
        _tune(store, models, settings, yes, json)


def _tune(store: "Store", models: Models, settings: EngineSettings, yes: bool, json: bool) -> None:
    from specgguf.measure import tune as tuning

    engine = open_engine(store, models, settings)
    with closing(engine), closing(store.progress):
        found = tuning.tune(engine, partial(store.progress.show, "measuring batches"))
        report: dict[str, Any] = {
            "target": engine.target.header.path.name,
            "draft": engine.draft.header.path.name if engine.draft else None,
            "width_s": found.width_s,
            "noise": found.noise,
            "steady": found.steady,
            "at_once": found.costs(min(found.width_s)).most_productive(max(engine.max_width, 1)),
            "draft_step_s": {depth: steps["model"] for depth, steps in found.step_s.items() if "model" in steps},
            "requantized_draft": None,
        }
        source = _published_draft(store, models)
        if source and engine.speculative:
            report["requantized_draft"] = _try_requantized(store, source, settings)
        store.progress.close()
        if json:
            output.write_json(report)
        else:
            _show(found)
        if not found.steady:
            output.note("this machine was busy: rounds did not agree; run it again when nothing else runs")
        advice = report["requantized_draft"]
        if source and advice and advice["saving"]:
            _offer(store, engine, source, found, advice["saving"], yes)


def _published_draft(store: "Store", models: Models) -> "HubFile | SplitFile | None":
    """The draft that is used where nobody names one, unless it is one that was made here."""
    from specgguf.models.files import DerivedFile

    if models.draft is not None or models.draft_quant is not None:
        return None
    draft = models.resolve(open_resolver(store), "draft")
    if draft is None or isinstance(draft, Path | DerivedFile) or tuned_draft(store, draft) != draft:
        return None
    return draft


def _try_requantized(store: "Store", source: "HubFile | SplitFile", settings: EngineSettings) -> dict[str, Any] | None:
    """What a step of the draft saves when it is requantized; None if that has been done."""
    from specgguf.llama.quantize import quantize
    from specgguf.measure.tune import Place, draft_saving
    from specgguf.models.files import DerivedFile

    made = DerivedFile(source, _FAST_QUANT, as_draft=True)
    published, existing = store.provide([source])[0], store.find(made)
    with TemporaryDirectory(dir=store.root) as folder:
        path = existing or Path(folder) / f"{_FAST_QUANT}.gguf"
        if not existing:
            show = partial(store.progress.show, f"trying {made.name}")
            quantize(published, path, _FAST_QUANT, made.same_output_type, show)
        place = Place.of(settings, "draft")
        saving = draft_saving(published, path, place, partial(store.progress.show, "comparing drafts"))
    return {"quant": _FAST_QUANT, "saving": saving}


def _offer(
    store: "Store", engine: "Engine", source: "HubFile | SplitFile", found: "Tuned", saving: float, yes: bool
) -> None:
    from specgguf.measure.tune import advice_key
    from specgguf.models.files import DerivedFile

    better = DerivedFile(source, _FAST_QUANT, as_draft=True)
    output.note(f"{better.name} takes {saving:.0%} less time a step on this machine; a draft changes speed, never text")
    if not yes and not output.can_ask():
        output.note("specgguf tune --yes makes it and uses it from then on")
        return
    if yes or output.confirm("Make it, and use it from now on?"):
        (path,) = store.provide([better])
        open_profiles(store).save(advice_key(store.digests.of(store.provide([source])[0])), {"quant": _FAST_QUANT})
        engine.costs.hash_files(path)
        engine.costs.save_tuned(path, found.remembered(1 - saving))
        output.note(f"from now on {path} drafts where no --draft or --draft-quant says otherwise")


def _show(found: "Tuned") -> None:
    depths = list(found.width_s)
    first = found.width_s[depths[0]]
    head = ["width", *(f"ms at {depth}" for depth in depths), "relative", "tokens/s of as many texts"]
    rows = [
        [
            str(width),
            *(f"{1000 * found.width_s[depth][width]:.1f}" for depth in depths),
            f"{seconds / first[1]:.2f}",
            f"{width / seconds:.1f}",
        ]
        for width, seconds in first.items()
    ]
    output.table([head, *rows], left=0, bars=list(first.values()))
    costs = found.costs(depths[0])
    size = costs.most_productive(max(first))
    gain = f"{costs.throughput(size):.1f} tokens/s, one alone {costs.throughput(1):.1f}"
    output.write(f"most with run --lines: {size} at once, {gain}\n")
    output.write(f"rounds took {found.noise:.0%} longer than the least, usually\n")
    for depth, steps in found.step_s.items():
        for drafter, seconds in steps.items():
            output.write(f"draft step ({drafter}) after {depth} tokens: {1000 * seconds:.1f} ms\n")


def _compare_quants(store: "Store", models: Models, settings: EngineSettings, json: bool) -> None:
    from specgguf.exact.choice import MAX_WIDTH
    from specgguf.measure import tune as tuning
    from specgguf.models.hub.store import size_of

    here, elsewhere = _quants(store, models)
    place, widths = tuning.Place.of(settings, "target"), range(1, MAX_WIDTH + 1)
    times = {}
    with closing(store.progress):
        draft = models.resolve(open_resolver(store), "draft")
        draft_path = store.find(tuned_draft(store, draft)) if draft is not None else None
        step_s = 0.0
        if draft_path:
            draft_place = tuning.Place.of(settings, "draft")
            show = partial(store.progress.show, "measuring the draft")
            step_s = tuning.file_times(draft_path, "draft", draft_place, [1], tuning.REPEATS, show)[1]
        for name, path in here.items():
            show = partial(store.progress.show, f"measuring {name}")
            times[name] = tuning.file_times(path, "target", place, widths, tuning.REPEATS, show)
    rows = [_row(name, size_of(path), times[name], step_s, "measured") for name, path in here.items()]
    model = next(iter(here))
    for name, size in elsewhere.items():
        scaled = {width: seconds * size / size_of(here[model]) for width, seconds in times[model].items()}
        rows.append(_row(name, size, scaled, step_s, f"estimated from the size of {model}"))
    rows.sort(key=lambda row: row["size"])
    report = {"acceptance": tuning.ACCEPTANCE, "draft_step_s": step_s or None, "quants": rows}
    if json:
        output.write_json(report)
        return
    head = ["quant", "GB", "tokens/s", "drafting", "drafts", "how it is known"]
    cells = [
        [
            row["quant"],
            f"{row['size'] / 1e9:.2f}",
            f"{row['plain']:.1f}",
            f"{row['speculative']:.1f}",
            str(row["num_draft"]),
            row["known"],
        ]
        for row in rows
    ]
    output.table([head, *cells], left=1)
    output.write(
        f"\nfastest plain: {max(rows, key=lambda row: row['plain'])['quant']}; "
        f"fastest drafting: {max(rows, key=lambda row: row['speculative'])['quant']}, "
        f"if {tuning.ACCEPTANCE:.0%} of the drafted tokens are accepted"
        f"{'' if step_s else ' and drafting costs nothing, as there is no draft model here'}\n"
    )


def _quants(store: "Store", models: Models) -> tuple[dict[str, Path], dict[str, int]]:
    """The target's quantizations: paths of those on this machine, the named one first; sizes of the others."""
    from specgguf.llama.quantize import known_quants
    from specgguf.models.files import DerivedFile

    resolver = open_resolver(store)
    chosen = models.resolve(resolver, "target")
    if chosen is None:
        raise UsageError("no target", "give one with --pair or --target")
    catalogue = resolver.catalogue
    source = chosen.source if isinstance(chosen, DerivedFile) else chosen
    files: Mapping[str, Any] = next((files for files in catalogue.models.values() if source in files.values()), {})
    (path,) = store.provide([chosen])
    made_here = f"{chosen.quant}, made here" if isinstance(chosen, DerivedFile) else path.name
    name = next((quant for quant, file in files.items() if file == chosen), made_here)
    here, elsewhere = {name: path}, {}
    for quant, file in files.items():
        found = store.find(file)
        if found:
            here.setdefault(quant, found)
        elif not isinstance(file, DerivedFile):
            elsewhere[quant] = sum(part.size for part in file.hub_files)
    for quant in known_quants():
        made = store.find(DerivedFile(source, quant))
        if made and made not in here.values():
            here.setdefault(f"{quant}, made here", made)
    return here, elsewhere


def _row(name: str, size: int, times: dict[int, float], step_s: float, known: str) -> dict[str, Any]:
    from specgguf.measure.tune import best_fixed

    speed, count = best_fixed(times, step_s)
    return {
        "quant": name,
        "size": size,
        "plain": 1 / times[1],
        "speculative": speed,
        "num_draft": count,
        "known": known,
        "width_s": times,
    }
