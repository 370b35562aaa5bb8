"""What config.toml says of routes: how each drafts, and when a guard switches one off."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import typer

from specgguf.cli.options.drafting import Drafting
from specgguf.engine.settings import Mode
from specgguf.journal.guard import LEAST_WINDOW, Guard

if TYPE_CHECKING:
    from specgguf.text.tomlfile import TomlFile

TABLES = ("routes", "guard")
"""The tables of config.toml that are about routes."""
_USUAL = Guard(min_speed=0.98, window=50)


@dataclass(frozen=True, slots=True)
class Routes:
    """What is said of routes; `guard` is None where none is asked for."""

    modes: Mapping[str, Mode] = field(default_factory=dict)
    guard: Guard | None = None

    def table(self) -> dict[str, Any]:
        """The same as in the file; the guard's defaults are filled in."""
        guard = self.guard and asdict(self.guard)
        return {"routes": {route: {"speculate": mode.value} for route, mode in self.modes.items()}, "guard": guard}

    def drafting(self, ctx: typer.Context, drafting: Drafting, route: str) -> Drafting:
        """As the route asks for, unless the command line or the environment says how to draft."""
        source = ctx.get_parameter_source("speculate")
        if route not in self.modes or (source and source.name in ("COMMANDLINE", "ENVIRONMENT")):
            return drafting
        return replace(drafting, speculate=self.modes[route])


def read_routes(file: "TomlFile") -> Routes:
    """What a file says of routes; raises ConfigError for a mistake."""
    routes = file.table(("routes",), file.root.get("routes", {}))
    modes = {route: _mode(file, route, table) for route, table in routes.items()}
    return Routes({route: mode for route, mode in modes.items() if mode}, _guard(file))


def _mode(file: "TomlFile", route: str, table: Any) -> Mode | None:  # noqa: ANN401
    where = ("routes", route)
    given = file.table(where, table, ["speculate"]).get("speculate")
    if given is None:
        return None
    if given not in list(Mode):
        *most, last = Mode
        raise file.mistake((*where, "speculate"), f"must be {', '.join(most)} or {last}")
    return Mode(given)


def _guard(file: "TomlFile") -> Guard | None:
    if "guard" not in file.root:
        return None
    table = file.table(("guard",), file.root["guard"], ["min_speed", "window"])
    min_speed, window = table.get("min_speed", _USUAL.min_speed), table.get("window", _USUAL.window)
    if isinstance(min_speed, bool) or not isinstance(min_speed, int | float) or not 0 < min_speed <= 10:
        raise file.mistake(("guard", "min_speed"), "must be a number above 0, 10 at most")
    if isinstance(window, bool) or not isinstance(window, int) or not LEAST_WINDOW <= window <= 10_000:
        raise file.mistake(("guard", "window"), f"must be a whole number, {LEAST_WINDOW} to 10000")
    return Guard(float(min_speed), window)
