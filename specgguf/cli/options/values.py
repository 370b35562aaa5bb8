"""What the value of an option may be."""

from pathlib import Path

import typer
from typer.core import TyperOption

from specgguf.engine.settings import MAX_PARALLEL

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


def num_texts(value: str | int) -> int:
    """How many texts may share a batch; "auto" is 0."""
    if value == "auto":
        return 0
    if not str(value).isdecimal() or not 1 <= int(value) <= MAX_PARALLEL:
        raise typer.BadParameter(f"{value!r} is neither such a number nor 'auto'.")
    return int(value)
