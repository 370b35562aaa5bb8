"""Options in groups: a command takes dataclasses, and the command line has an option for each of their fields."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which fields of a group a command has as options. The others keep their defaults."""

    names: frozenset[str] = frozenset()
    is_kept: bool = False
    """Whether the names are those that it has, or those that it has not."""

    def options(self, group: Any) -> list[str]:  # noqa: ANN401 (a dataclass)
        """The names of the fields that are options; raises ValueError for a name that is none of the fields."""
        known = [field.name for field in fields(group)]
        if unknown := self.names.difference(known):
            raise ValueError(f"{group.__name__} has no {', '.join(sorted(unknown))}")
        return [name for name in known if (name in self.names) is self.is_kept]


def only(*names: str) -> _Choice:
    """For `Annotated[Group, only(...)]`: these fields alone are options."""
    return _Choice(frozenset(names), is_kept=True)


def without(*names: str) -> _Choice:
    """For `Annotated[Group, without(...)]`: all fields but these are options."""
    return _Choice(frozenset(names))


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """`function` as Typer reads it: with the fields of dataclasses in place of parameters that are dataclasses.

    Every field is an annotated option with its default. Raises ValueError where two options have the same name.
    """
    groups: dict[str, tuple[Any, list[str]]] = {}
    parameters = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        group, choice = _split(parameter.annotation)
        if not is_dataclass(group):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        names = choice.options(group)
        groups[parameter.name] = group, names
        types = get_type_hints(group, include_extras=True)
        defaults = {field.name: field.default for field in fields(group)}
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=types[name])
            for name in names
        ]

    def command(**values: Any) -> None:  # noqa: ANN401
        collected = {
            parameter: group(**{name: values.pop(name) for name in names})
            for parameter, (group, names) in groups.items()
        }
        function(**values, **collected)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _split(annotation: Any) -> tuple[Any, _Choice]:  # noqa: ANN401
    """A parameter's type, and which of its fields are options."""
    if get_origin(annotation) is not Annotated:
        return annotation, _Choice()
    kind, *others = get_args(annotation)
    return kind, next((choice for choice in others if isinstance(choice, _Choice)), _Choice())
