"""What the value of an option may be."""

import re
import time
from datetime import datetime
from pathlib import Path

import typer
from typer.core import TyperOption

from specgguf.engine.settings import MAX_PARALLEL

_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list[str]: "a list of texts",
    Path: "the path of a file",
}


def allowed(option: TyperOption) -> str:
    """What an option may be, in words."""
    kind = option.type_descriptor
    if kind.parameter_info.parser is num_layers:
        return "a whole number, 0 or more, or all"
    if kind.parameter_info.parser is num_texts:
        return f"a whole number, 1 to {MAX_PARALLEL}, or auto"
    if kind.parameter_info.parser is moment:
        return "a time ago (90m, 24h, 7d, 2w) or a date (2026-12-31, 2026-12-31T18:00)"
    if kind.choices:
        *most, last = kind.choices
        return f"{', '.join(most)} or {last}"
    bounds = [f"{bound:g}" if isinstance(bound, float) else str(bound) for bound in (option.min, option.max)]
    if option.min is None:
        return _KINDS[kind.annotation]
    return f"{_KINDS[kind.annotation]}, {f'{bounds[0]} or more' if option.max is None else ' to '.join(bounds)}"


def is_set(value: object) -> bool:
    """Whether a value asks for something, as --no-raw does not."""
    return value is not None and value is not False


def num_layers(value: str | int) -> int:
    """A number of layers on the command line or in config.toml; "all" is -1, as in llama.cpp."""
    if value == "all":
        return -1
    if not str(value).isdecimal():
        raise typer.BadParameter(f"{value!r} is neither a number nor 'all'.")
    return int(value)


def moment(value: str) -> float:
    """A time in the past as seconds since 1970: so many minutes, hours, days or weeks ago, or a date."""
    if found := re.fullmatch(r"([0-9]{1,6})([mhdw])", value):
        return time.time() - int(found[1]) * _SECONDS[found[2]]
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f"{value!r} is neither a time ago nor a date.") from None


def num_texts(value: str | int) -> int:
    """How many texts may share a batch; "auto" is 0."""
    if value == "auto":
        return 0
    if not str(value).isdecimal() or not 1 <= int(value) <= MAX_PARALLEL:
        raise typer.BadParameter(f"{value!r} is neither such a number nor 'auto'.")
    return int(value)
