"""`specgguf pairs`: the catalogue."""

from typing import TYPE_CHECKING, Any

from specgguf.cli import options, output
from specgguf.cli.opening import open_resolver, open_store

if TYPE_CHECKING:
    from specgguf.config import Catalogue
    from specgguf.hub.store import Store


def pairs(json: options.Json = False) -> None:
    """List the pairs of models.toml: what they are for, their sizes, and what is on this machine."""
    store = open_store()
    catalogue = open_resolver(store).catalogue
    rows = [_row(catalogue, store, name) for name in catalogue.pairs]
    if json:
        output.write_json(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        mark = "*" if row["default"] else " "
        size = f"{row['target']['size'] / 1e9:5.1f} + {row['draft']['size'] / 1e9:3.1f} GB"
        output.write(f"{mark} {row['name']:{width}}  {size}  {_here(row):9s}  {row['purpose']}\n")


def _row(catalogue: "Catalogue", store: "Store", name: str) -> dict[str, Any]:
    pair = catalogue.pairs[name]
    row: dict[str, Any] = {"name": name, "default": name == catalogue.default, "purpose": pair.purpose}
    for role, reference in (("target", pair.target), ("draft", pair.draft)):
        file = catalogue.file(reference)
        path = store.find(file)
        size = path.stat().st_size if path else sum(part.size for part in file.hub_files)
        row[role] = {"reference": reference, "size": size, "path": str(path) if path else None}
    return row


def _here(row: dict[str, Any]) -> str:
    here = [role for role in ("target", "draft") if row[role]["path"]]
    return {0: "", 1: f"{here[0] if here else ''} only", 2: "on disk"}[len(here)]
