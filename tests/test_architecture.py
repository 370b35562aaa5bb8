"""docs/architecture.md says what is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "specgguf"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)`\s+`([\w.]+)`", PAGE)))
LONGEST_MODULE, LARGEST_ROOM = 350, 2200


def defined(path):
    """Names of functions and classes, methods with their class."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_name_is_where_the_page_says(file, name):
    assert name in defined(PACKAGE / file)


def test_the_page_names_enough_to_be_worth_it():
    assert len(NAMED) > 25
    assert not set(re.findall(r"`([\w/]+\.py)`", PAGE)) - {
        str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")
    }


def test_the_drawing_has_every_room():
    drawing = PAGE.partition("```text\n")[2].partition("```")[0]
    drawn = set(re.findall(r"(?:^|  )(\w+)/", drawing, re.MULTILINE))
    rooms = {path.parent.name for path in PACKAGE.rglob("__init__.py")} - {"specgguf", "options"}
    assert drawn == rooms


def test_the_drawing_has_the_floors_that_are_checked():
    drawing = PAGE.partition("```text\n")[2].partition("```")[0]
    floors = [
        set(re.findall(r"(\w+)(?:/|\.py)", line.partition("   ")[0] + line[:27])) for line in drawing.splitlines()
    ]
    floors = [floor for floor, line in zip(floors, drawing.splitlines(), strict=True) if not line.startswith(" ")]
    checked = re.search(r"^layers = \[(.*)\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert floors == [set(re.findall(r"\w+", layer)) for layer in re.findall(r'"([^"]+)"', checked[1])]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_is_too_long_to_be_read(path):
    assert lines(path) <= LONGEST_MODULE


@pytest.mark.parametrize(
    "room", sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_")
)
def test_no_room_is_too_large(room):
    if room != "cli":
        assert sum(map(lines, (PACKAGE / room).rglob("*.py"))) <= LARGEST_ROOM
