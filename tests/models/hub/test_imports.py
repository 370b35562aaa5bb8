"""specgguf imports only public names from other packages."""

import ast
from pathlib import Path

import pytest

import specgguf

SOURCES = sorted(Path(specgguf.__file__).parent.rglob("*.py"))


def private_imports(source):
    """Imports from other packages where a part of the dotted name begins with an underscore."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, *parts = name.split(".")
            if package not in ("__future__", "specgguf") and any(part.startswith("_") for part in (package, *parts)):
                yield name


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import a._b", ["a._b"]),
        ("from a import _b", ["a._b"]),
        ("from a._b import c, d", ["a._b.c", "a._b.d"]),
        ("def f():\n    from a import b, _c", ["a._c"]),
        ("import a.b\nfrom a.b import c_\nfrom __future__ import annotations\nfrom specgguf.x import _y", []),
    ],
)
def test_private_imports_are_found(source, found):
    assert list(private_imports(source)) == found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCES[0].parent)))
def test_no_private_name_of_another_package_is_imported(path):
    assert list(private_imports(path.read_text(encoding="utf-8"))) == []
