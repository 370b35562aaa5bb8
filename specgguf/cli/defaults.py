"""config.toml: the user's own defaults for options.

Keys are long options without the dashes. At the top they hold for every command that has the option, in a table for
the command of its name. Tables of other names are about routes (`cli/routes.py`).
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from specgguf.cli.options.precedence import OVERRIDDEN_BY
from specgguf.cli.options.values import allowed, is_set
from specgguf.cli.routes import TABLES, Routes, read_routes
from specgguf.errors import ConfigError, SpecggufError
from specgguf.models.locations import config_file

if TYPE_CHECKING:
    from specgguf.text.tomlfile import TomlFile, Where

CONFIG = "config.toml"
_HELP = "docs/cli.md shows the form, and lists the options"
NOT_IN_FILE = (
    *("lines", "skip", "parallel", "unordered", "load", "for", "remove", "yes", "dry-run", "quants", "here"),
    *("endpoint", "endpoint-baseline", "model"),
    *("route", "since", "prometheus", "reset-guard"),
)
"""Keys of options that belong to one call only: they say what it is about, or agree to what it does."""

Values = Mapping[tuple[str | int, ...], Any]
"""Values by where they stand in the file, the last of them being the option's key."""


class Defaults(dict[str, Any]):
    """What the file says of a command's options: the values by parameter, as typer wants them."""

    def __init__(self, file: "TomlFile", places: "Mapping[str, Where]", values: Values) -> None:
        super().__init__({name: values[place] for name, place in places.items()})
        self._file = file
        self._places = places

    def places_of(self, error: SpecggufError, ctx: typer.Context) -> str:
        """Where in the file the values stand that an error is about, in brackets; empty for none of the file."""
        options = options_of(ctx.command)
        found = []
        for option in (options[key] for key in error.options if key in options):
            source = ctx.get_parameter_source(option.name)
            if source is not None and source.name == "DEFAULT_MAP":
                found.append(self._file.place(self._places[option.name]))
        return f" ({'; '.join(found)})" if found else ""


class ConfiguredCommand(TyperCommand):
    """A command whose options may have defaults in the file. While the file has a mistake, only --help works."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (click's own)
        """Run it; an error about the value of an option says where in the file that value stands."""
        if isinstance(ctx.obj, ConfigError):
            raise ctx.obj
        try:
            return super().invoke(ctx)
        except SpecggufError as error:
            if isinstance(ctx.default_map, Defaults):
                error.message += ctx.default_map.places_of(error, ctx)
            raise


def load_defaults(ctx: typer.Context) -> tuple[dict[str, Any] | None, Routes]:
    """What config.toml says for the program's commands, as typer wants it, and of routes.

    Raises ConfigError for a mistake.
    """
    path = config_file(CONFIG)
    if not os.path.lexists(path):
        return None, Routes()
    from specgguf.text.tomlfile import TomlFile

    file = TomlFile(path, _HELP)
    return _of_group(file, ctx, (), file.root, {}), read_routes(file)


def options_of(command: Any) -> dict[str, TyperOption]:  # noqa: ANN401
    """The options of a command, or of all those in a group, by their keys."""
    if isinstance(command, TyperGroup):
        return {key: option for inner in command.commands.values() for key, option in options_of(inner).items()}
    options = [param for param in command.params if isinstance(param, TyperOption)]
    return {max(option.opts, key=len).lstrip("-"): option for option in options}


def _of_group(file: "TomlFile", ctx: typer.Context, where: "Where", table: Any, outer: Values) -> dict[str, Any]:  # noqa: ANN401
    group = ctx.command
    assert isinstance(group, TyperGroup)
    others = [*group.commands, *(() if where else TABLES)]
    file.table(where, table, [*options_of(group), *others])
    values = {**outer, **{(*where, key): value for key, value in table.items() if key not in others}}
    found = {}
    for name, command in group.commands.items():
        inner = typer.Context(command, parent=ctx, info_name=name)
        of = _of_group if isinstance(command, TyperGroup) else _of_command
        found[name] = of(file, inner, (*where, name), table.get(name, {}), values)
    return found


def _of_command(file: "TomlFile", ctx: typer.Context, where: "Where", table: Any, outer: Values) -> Defaults:  # noqa: ANN401
    options = options_of(ctx.command)
    file.table(where, table, list(options))
    values = {**outer, **{(*where, key): value for key, value in table.items()}}
    own = {place: value for place, value in values.items() if place[-1] in options}
    for place, value in own.items():
        _check(file, ctx, place, options[str(place[-1])], value)
    places = _without_overridden(file, {options[str(place[-1])].name: place for place in own}, own)
    return Defaults(file, places, own)


def _without_overridden(file: "TomlFile", places: "Mapping[str, Where]", values: Values) -> "dict[str, Where]":
    """Without what the table of a command overrides; raises ConfigError for two that exclude each other."""
    asked = {name: place for name, place in places.items() if is_set(values[place])}
    kept = dict(places)
    for name, place in asked.items():
        for other in OVERRIDDEN_BY.get(name, ()):
            rival = asked.get(other, ())
            if len(rival) == len(place) and name in OVERRIDDEN_BY.get(other, ()):
                hint = "leave one of them out, or give it in the table of a command"
                raise file.mistake(place, f"excludes {rival[-1]}, which is there too", hint)
            if len(rival) > len(place):
                kept.pop(name, None)
    return kept


def _check(file: "TomlFile", ctx: typer.Context, where: "Where", option: TyperOption, value: Any) -> None:  # noqa: ANN401
    if where[-1] in NOT_IN_FILE:
        raise file.mistake(where, "is for the command line only", "take it out of the file")
    if not _fits(ctx, option, value):
        raise file.mistake(where, f"must be {allowed(option)}")


def _fits(ctx: typer.Context, option: TyperOption, value: Any) -> bool:  # noqa: ANN401
    kind = option.type_descriptor
    parts = value if kind.is_list and isinstance(value, list) else [value]
    if option.is_flag is not isinstance(value, bool):
        return False
    if kind.annotation not in (bool, int, float) and not all(isinstance(part, str) for part in parts):
        return False
    try:
        option.process_value(ctx, value)
    except typer.TyperException:
        return False
    return True
