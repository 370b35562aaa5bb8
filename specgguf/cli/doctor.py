"""`specgguf doctor`: the machine, and what is known of a pair on it."""

from typing import TYPE_CHECKING, Annotated, Any

from specgguf.cli.opening import explain_aborts, find_draft, open_profiles, open_resolver, open_store, tuned_draft
from specgguf.cli.options.groups import grouped, only
from specgguf.cli.options.models import NO_DRAFT, Models, Offline
from specgguf.cli.options.output import Json
from specgguf.cli.options.resources import Resources
from specgguf.cli.terminal import output
from specgguf.errors import about

if TYPE_CHECKING:
    from pathlib import Path

    from specgguf.exact.choice import WidthSurvey
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

        survey = open_survey(path, resources.gpu_layers, resources.threads, open_profiles(store))
        report |= {**_widths(survey), "costs": _costs(survey, draft)}
    if json:
        output.write_json(report)
        return
    for name, value in report.items():
        if name == "profiles":
            output.write("".join(_profile(profile) for profile in value))
        elif name == "costs":
            output.write("".join(_cost(cost) for cost in value))
        else:
            output.write(f"{name + ':':11s}{_shown(value)}\n")


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
            {"settings": str(arithmetic), "classes": known.classes, "seconds": known.seconds}
            for arithmetic, known in found.items()
            if known
        ],
        "exact": str(choice) if choice else "not measured yet: the first run with --exact does it",
    }


def _profile(profile: dict[str, Any]) -> str:
    seconds = profile["seconds"]
    costs = ", ".join(f"{width}: {seconds[width] / seconds[1]:.2f}" for width in seconds)
    classes = " ".join("{" + ",".join(map(str, group)) + "}" for group in profile["classes"])
    return (
        f"measured with {profile['settings']}\n"
        f"  widths with equal bits  {classes}\n"
        f"  time by width           {costs} (width 1: {seconds[1] * 1000:.1f} ms)\n"
    )


def _costs(survey: "WidthSurvey", draft: "Path | None") -> list[dict[str, Any]]:
    """What batches and draft steps cost, as `tune` and answers have found, in seconds."""
    from specgguf.engine.memory import CostStore
    from specgguf.exact.choice import candidates
    from specgguf.speculative.policy.depths import least_depth

    return [
        {
            "settings": str(arithmetic),
            "depth": least_depth(level),
            "width_s": dict(sorted(table["times"].items())),
            "draft_step_s": {
                name: times["step"] for name, times in table.get("drafters", {}).items() if "step" in times
            },
        }
        for arithmetic in candidates(None, None)
        for level, table in sorted(CostStore(survey, arithmetic, survey.profiles).load(draft, None).items())
    ]


def _cost(cost: dict[str, Any]) -> str:
    widths = ", ".join(f"{width}: {1000 * seconds:.1f}" for width, seconds in cost["width_s"].items())
    steps = ", ".join(f"{name} {1000 * seconds:.1f}" for name, seconds in cost["draft_step_s"].items())
    return (
        f"batches after {cost['depth']} or more tokens, with {cost['settings']}\n"
        f"  ms by width             {widths}\n" + (f"  ms of a draft step      {steps}\n" if steps else "")
    )
