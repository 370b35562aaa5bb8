"""Options that exclude each other: what the command line says comes before what config.toml says."""

from typing import Any

import typer

from specgguf.cli.options.values import is_set

OVERRIDDEN_BY = {
    "pair": ("target",),
    "target": ("pair",),
    "draft": ("pair", "target"),
    "quant": ("pair", "target"),
    "draft_quant": ("pair", "target", "draft"),
    "grammar": ("json_schema", "regex", "lark"),
    "json_schema": ("grammar", "regex", "lark"),
    "regex": ("grammar", "json_schema", "lark"),
    "lark": ("grammar", "json_schema", "regex"),
    "system": ("raw",),
    "chat_template": ("raw",),
    "raw": ("system", "chat_template"),
    "json": ("jsonl", "prometheus"),
    "jsonl": ("json", "lines"),
}
"""Parameters, and the others that override them: given on the command line, these make void what config.toml says of
the parameter. Two that override each other exclude each other.
"""


def unless_overridden(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:  # noqa: ANN401
    """A callback: the parameter's value, or its default if the value is config.toml's and is overridden."""

    def source(name: str) -> str:
        return found.name if (found := ctx.get_parameter_source(name)) else ""

    given = [ctx.params.get(other) for other in OVERRIDDEN_BY[param.name] if source(other) == "COMMANDLINE"]
    return param.default if source(param.name) == "DEFAULT_MAP" and any(map(is_set, given)) else value
