"""`specgguf doctor`: the machine, and what is known of a pair on it."""

from typing import TYPE_CHECKING, Annotated, Any

from specgguf.cli.opening import open_profiles, open_resolver, open_store
from specgguf.cli.options.groups import grouped, only
from specgguf.cli.options.models import Models, Offline
from specgguf.cli.options.output import Json
from specgguf.cli.options.resources import Resources
from specgguf.cli.terminal import output

if TYPE_CHECKING:
    from specgguf.exact.choice import WidthSurvey


@grouped
def doctor(
    models: Annotated[Models, only("pair", "target", "quant")],
    resources: Annotated[Resources, only("gpu_layers", "threads")],
    offline: Offline = False,
    json: Json = False,
) -> None:
    """Show devices, build and threads, and what was measured of a target on this machine. Nothing is measured now."""
    from specgguf.llama import library

    store = open_store(offline)
    resolver = open_resolver(store)
    file = models.resolve(resolver, "target")
    path = store.find(file) if file else None
    report: dict[str, Any] = {
        "llama.cpp": library.version(),
        "devices": library.devices(),
        "gpu": library.gpu_available(),
        "threads": resources.threads or library.num_physical_cores(),
        "target": str(path) if path else None,
        "store": str(store.root),
    }
    if path:
        from specgguf.engine.engine import open_survey

        report |= _widths(open_survey(path, resources.gpu_layers, resources.threads, open_profiles(store)))
    if json:
        output.write_json(report)
        return
    for name, value in report.items():
        if name == "profiles":
            output.write("".join(_profile(profile) for profile in value))
        else:
            shown = ("yes" if value else "no") if isinstance(value, bool) else "-" if value is None else value
            output.write(f"{name + ':':11s}{shown}\n")


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
