"""`specgguf config`: the value of every option, and where it comes from."""

import json as jsonlib
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from specgguf.cli.defaults import CONFIG, NOT_IN_FILE, options_of
from specgguf.cli.options.output import Json
from specgguf.cli.terminal import output
from specgguf.models.locations import config_file


class _Setting(NamedTuple):
    command: str
    key: str
    value: Any
    source: str


def config(ctx: typer.Context, json: Json = False) -> None:
    """Show the value that every option has if it is not given, and its source: environment, config.toml or default.

    `-` stands for what a command decides by itself. An option whose value is the same everywhere is listed once. What
    the file says of routes comes last.
    """
    path = config_file(CONFIG)
    root = ctx.find_root()
    settings = list(_settings(typer.Context(root.command, default_map=root.default_map), ()))
    routes = root.obj.table()
    if json:
        found: dict[str, Any] = {"file": str(path), "options": {}, **routes}
        for command, key, value, source in settings:
            found["options"].setdefault(command, {})[key] = {"value": value, "source": source}
        output.write_json(found)
        return
    rows = list(dict.fromkeys(_rows(settings)))
    rows += [
        (f"{name}.{key}", jsonlib.dumps(value, ensure_ascii=False), CONFIG)
        for name, table in (
            *((f"routes.{route}", of) for route, of in routes["routes"].items()),
            ("guard", routes["guard"]),
        )
        for key, value in (table or {}).items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    output.write(f"{path}{'' if os.path.lexists(path) else ' (not there)'}\n\n")
    output.write("".join(f"{key:{widths[0]}}  {value:{widths[1]}}  {source}\n" for key, value, source in rows))


def _settings(ctx: typer.Context, where: tuple[str, ...]) -> Iterator[_Setting]:
    if isinstance(ctx.command, TyperGroup):
        for name, command in ctx.command.commands.items():
            yield from _settings(typer.Context(command, parent=ctx, info_name=name), (*where, name))
        return
    for key, option in options_of(ctx.command).items():
        if key in NOT_IN_FILE:
            continue
        value, _ = option.handle_parse_result(ctx, {}, [])
        source = {"ENVIRONMENT": str(option.envvar), "DEFAULT_MAP": CONFIG}
        found = ctx.get_parameter_source(option.name)
        yield _Setting(".".join(where), key, _plain(value), source.get(found.name if found else "", "default"))


def _rows(settings: list[_Setting]) -> Iterator[tuple[str, str, str]]:
    for command, key, value, source in settings:
        same = all((other.value, other.source) == (value, source) for other in settings if other.key == key)
        shown = "-" if value is None else jsonlib.dumps(value, ensure_ascii=False)
        yield key if same else f"{command}.{key}", shown, source


def _plain(value: Any) -> Any:  # noqa: ANN401
    """As JSON and TOML know it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value] or None
    return value
