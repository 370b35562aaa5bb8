"""config.toml: the user's own defaults for options.

Keys are long options without the dashes. At the top they hold for every command that has the option, in a table for
the command of its name.
"""

import os
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup, TyperOption

from specgguf.config import own_path
from specgguf.tomlfile import TomlFile, Where

CONFIG = "config.toml"
_HELP = "docs/cli.md shows the form, and lists the options"

Values = Mapping[Where, Any]
"""Values by where they stand in the file, the last of them being the option's key."""


def load_defaults(ctx: typer.Context) -> dict[str, Any] | None:
    """What config.toml says for the program's commands, as typer wants it; raises ConfigError for a mistake."""
    path = own_path(CONFIG)
    if not os.path.lexists(path):
        return None
    file = TomlFile(path, _HELP)
    return _of_group(file, ctx, (), file.root, {})


def options_of(command: Any) -> dict[str, TyperOption]:  # noqa: ANN401
    """The options of a command, or of all those in a group, by their keys."""
    if isinstance(command, TyperGroup):
        return {key: option for inner in command.commands.values() for key, option in options_of(inner).items()}
    options = [param for param in command.params if isinstance(param, TyperOption)]
    return {max(option.opts, key=len).lstrip("-"): option for option in options}


def _of_group(file: TomlFile, ctx: typer.Context, where: Where, table: Any, outer: Values) -> dict[str, Any]:  # noqa: ANN401
    group = ctx.command
    assert isinstance(group, TyperGroup)
    file.table(where, table, [*options_of(group), *group.commands])
    values = {**outer, **{(*where, key): value for key, value in table.items() if key not in group.commands}}
    found = {}
    for name, command in group.commands.items():
        inner = typer.Context(command, parent=ctx, info_name=name)
        of = _of_group if isinstance(command, TyperGroup) else _of_command
        found[name] = of(file, inner, (*where, name), table.get(name, {}), values)
    return found


def _of_command(file: TomlFile, ctx: typer.Context, where: Where, table: Any, outer: Values) -> dict[str, Any]:  # noqa: ANN401
    options = options_of(ctx.command)
    file.table(where, table, list(options))
    found = {}
    for place, value in {**outer, **{(*where, key): value for key, value in table.items()}}.items():
        option = options.get(str(place[-1]))
        if option:
            _check(file, ctx, place, option, value)
            found[option.name] = value
    return found


def _check(file: TomlFile, ctx: typer.Context, where: Where, option: TyperOption, value: Any) -> None:  # noqa: ANN401
    if option.is_flag is not isinstance(value, bool):
        raise file.mistake(where, "must be true or false" if option.is_flag else "cannot be true or false")
    try:
        option.process_value(ctx, value)
    except typer.TyperException as error:
        raise file.mistake(where, error.message) from None
