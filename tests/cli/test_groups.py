"""Options in groups: what Typer is given, and what a command gets."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from specgguf.cli.options.groups import grouped, only, without


@dataclass(frozen=True)
class Size:
    """Three options."""

    width: Annotated[int, typer.Option("--width", "-w")] = 1
    height: Annotated[int, typer.Option("--height")] = 2
    depth: Annotated[int, typer.Option("--depth")] = 3


def called(function, *arguments):
    app = typer.Typer()
    app.command()(grouped(function))
    return CliRunner().invoke(app, arguments)


def test_a_group_has_what_is_given_and_its_defaults():
    found = []

    def command(context: typer.Context, name: Annotated[str, typer.Argument()] = "x", *, size: Size) -> None:
        """What help says."""
        found.append((name, size, context.params))

    assert called(command, "y", "-w", "7").exit_code == 0
    assert found == [("y", Size(width=7), {"name": "y", "width": 7, "height": 2, "depth": 3})]
    assert "What help says." in called(command, "--help").output


@pytest.mark.parametrize("choice", [only("height"), without("width", "depth")])
def test_options_that_a_command_lacks_keep_their_defaults(choice):
    found = []

    def command(size: Annotated[Size, choice]) -> None:
        found.append(size)

    assert called(command, "--height", "9").exit_code == 0
    assert found == [Size(height=9)]
    assert called(command, "--width", "9").exit_code == 2


def test_a_name_that_is_no_option_of_the_group_is_a_mistake():
    def command(size: Annotated[Size, without("hight")]) -> None: ...

    with pytest.raises(ValueError, match="Size has no hight"):
        grouped(command)


def test_two_options_of_one_name_are_a_mistake():
    def command(size: Size, other: Size) -> None: ...

    with pytest.raises(ValueError, match="duplicate"):
        grouped(command)
