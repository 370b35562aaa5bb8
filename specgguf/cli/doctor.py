"""`specgguf doctor`: the machine, and what is known of a pair on it."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from specgguf.cli.opening import explain_aborts, find_draft, open_profiles, open_resolver, open_store, tuned_draft
from specgguf.cli.options.groups import grouped, only
from specgguf.cli.options.models import NO_DRAFT, Models, Offline
from specgguf.cli.options.output import Json
from specgguf.cli.options.resources import Resources
from specgguf.cli.terminal import output
from specgguf.errors import about

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specgguf.exact.choice import WidthSurvey
    from specgguf.exact.profiles import Profiles
    from specgguf.models.hub.store import Store
    from specgguf.models.references import Resolver


@grouped
def doctor(
    models: Models,
    resources: Annotated[Resources, only("gpu_layers", "threads")],
    offline: Offline = False,
    json: Json = False,
) -> None:
    """Show devices, build and threads, how a pair takes tokens back, and what was measured of its target here.

    Nothing is measured now, and no weights are loaded.
    """
    from specgguf.llama import library

    store = open_store(offline)
    resolver = open_resolver(store)
    target = models.resolve(resolver, "target")
    path = store.find(target) if target else None
    draft = _draft(models, store, resolver, path)
    report: dict[str, Any] = {
        "llama.cpp": library.version(),
        "devices": library.devices(),
        "gpu": library.gpu_available(),
        "threads": resources.threads or library.num_physical_cores(),
        "target": str(path) if path else None,
        "draft": str(draft) if draft else None,
        "rollback": _rollbacks(path, draft, models) if path else None,
        "store": str(store.root),
    }
    if path:
        from specgguf.engine.engine import open_survey

        profiles = open_profiles(store)
        survey = open_survey(path, resources.gpu_layers, resources.threads, profiles)
        report |= _widths(survey) | _costs(survey, profiles, draft if draft != path else None)
    if json:
        output.write_json({**report, "features": library.features()})
        return
    _show({**report, "devices": library.device_names(), "features": ", ".join(library.features())})


def _show(report: dict[str, Any]) -> None:
    """For people: a line for each fact, then what was measured, as tables."""
    profiles, tuned = report.pop("profiles", []), report.pop("tuned", None)
    if "at_once" in report:
        at_once = report.pop("at_once")
        report["at once"] = f"{at_once} line{'s' * (at_once > 1)} of run --lines" if at_once else "not known yet"
    for name, value in report.items():
        output.write(f"{name + ':':11s}{_shown(value)}\n")
    for profile in profiles:
        output.write(f"\nmeasured with {profile['settings']}, {_when(profile)}\n")
        output.write(f"widths with equal bits: {' '.join(map(_group, profile['classes']))}\n")
        _table({"ms": profile["seconds"]})
    if tuned:
        output.write(f"\nmeasured by tune, {_when(tuned)}\n")
        _table({f"ms at {name}": table["times"] for name, table in tuned["depths"].items()})
        for name, table in tuned["depths"].items():
            for drafter, times in table["drafters"].items():
                output.write(f"draft step ({drafter}) at {name}: {1000 * times['step']:.1f} ms\n")


def _shown(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {what}" for name, what in value.items())
    return "-" if value is None else value


def _draft(models: Models, store: "Store", resolver: "Resolver", target: "Path | None") -> "Path | None":
    """The draft that would be used, if it is here."""
    if models.draft == NO_DRAFT:
        return None
    draft = models.resolve(resolver, "draft")
    if draft is None:
        return find_draft(target, resolver.catalogue, store)[0] if target else None
    named = models.draft is not None or models.draft_quant is not None
    return store.find(draft if named else tuned_draft(store, draft))


def _rollbacks(target: "Path", draft: "Path | None", models: Models) -> dict[str, str]:
    """How the caches of both give tokens back."""
    from specgguf.engine.rollbacks import rollback_of
    from specgguf.engine.settings import DRAFT_MAX
    from specgguf.headers.heads import DraftKind, kind_of
    from specgguf.models.header import ModelHeader
    from specgguf.speculative.context import Rollback

    explain_aborts()
    with about(models.option_of("target")):
        header = ModelHeader.of_file(target, "target")
        found = {"target": str(rollback_of(header, DRAFT_MAX))}
    if draft:
        with about(models.option_of("draft")):
            draft_header = ModelHeader.of_file(draft, "draft")
            # The layers of heads are of attention, whatever their target's are.
            is_model = kind_of(draft_header.gguf, header.gguf) is DraftKind.MODEL
            found["draft"] = str(rollback_of(draft_header, 0) if is_model else Rollback.PARTIAL)
    return found


def _widths(survey: "WidthSurvey") -> dict[str, Any]:
    from specgguf.exact.choice import candidates

    found = {arithmetic: survey.known(arithmetic) for arithmetic in candidates(None, None)}
    choice = survey.recall(list(found))
    return {
        "profiles": [
            {"settings": str(arithmetic), "classes": known.classes, **known.timing.to_json()}
            for arithmetic, known in found.items()
            if known
        ],
        "exact": str(choice) if choice else "not measured yet: the first run with --exact does it",
    }


def _costs(survey: "WidthSurvey", profiles: "Profiles", draft: "Path | None") -> dict[str, Any]:
    """What is remembered of costs with this draft, in the usual settings."""
    from specgguf.engine.memory import CostStore
    from specgguf.engine.settings import MAX_PARALLEL
    from specgguf.exact.choice import candidates
    from specgguf.speculative.policy.depths import CostsByDepth, depths_of

    usual = candidates(None, None)[0]
    costs = CostStore(survey, usual, profiles)
    tables, tuned = costs.load(draft, survey.known(usual)), costs.tuned(draft)
    at_once = CostsByDepth(MAX_PARALLEL - 1, tables).at(0).most_productive(MAX_PARALLEL) if tables else None
    if tuned is None:
        return {"at_once": at_once, "tuned": None}
    depths = {depths_of(level): table for level, table in tuned.tables.items()}
    return {
        "at_once": at_once,
        "tuned": {"depths": depths, "at": tuned.at, "noise": tuned.noise, "steady": tuned.steady},
    }


def _when(found: dict[str, Any]) -> str:
    """When something was measured, and how noisy it was."""
    parts = [f"{datetime.fromtimestamp(found['at']).astimezone():%Y-%m-%d %H:%M}"]
    if "rounds" in found:
        parts.append(f"{found['rounds']} rounds")
    parts.append(f"noise {found['noise']:.0%}")
    if not found["steady"]:
        parts.append("the machine was busy")
    if found.get("doubted"):
        parts.append("batches were faster since: the next run with --exact measures them anew")
    return ", ".join(parts)


def _group(widths: "Sequence[int]") -> str:
    return "{" + ",".join(map(str, widths)) + "}"


def _table(columns: "dict[str, dict[int, float]]") -> None:
    """Milliseconds by width, and how the first column compares with its narrowest width."""
    first = next(iter(columns.values()))
    least = first[min(first)]
    rows = [
        [
            str(width),
            *(f"{1000 * times[width]:.2f}" if width in times else "" for times in columns.values()),
            f"{first[width] / least:.2f}",
        ]
        for width in first
    ]
    output.table([["width", *columns, "relative"], *rows], left=0, bars=list(first.values()))
