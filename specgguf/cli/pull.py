"""`specgguf pull`: fetch and verify models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specgguf.cli.completion import pairs_and_references
from specgguf.cli.opening import open_resolver, open_store
from specgguf.cli.options.models import Offline
from specgguf.cli.terminal import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specgguf.models.files import ModelFile
    from specgguf.models.hub.store import Store


def pull(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="PAIR|REF...",
            help="Pairs of models.toml, MODEL[:QUANT], hf:owner/repo[:QUANT].",
            autocompletion=pairs_and_references,
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be fetched, from where, and whether it fits.")
    ] = False,
    offline: Offline = False,
) -> None:
    """Fetch and verify models, and print where they lie; what is here already is not fetched again."""
    from specgguf.models.header import ModelHeader

    store = open_store(offline)
    resolver = open_resolver(store)
    references: list[str] = []
    for name in names:
        pair = resolver.catalogue.pairs.get(name)
        references += [pair.target, pair.draft] if pair else [name]
    wanted = [resolver.resolve(reference) for reference in dict.fromkeys(references)]
    for file in wanted:
        if isinstance(file, Path):
            ModelHeader.of_file(file, "local")  # a file of the user's own: at least it must be a model
    if dry_run:
        output.write(_plan(store, [file for file in wanted if not isinstance(file, Path)]))
    else:
        output.write("".join(f"{path}\n" for path in store.provide(wanted)))


def _plan(store: "Store", files: "Sequence[ModelFile]") -> str:
    """A line per file to fetch, then the sum and the free space."""
    missing = store.missing(files)
    lines = [f"{file.size / 1e9:8.2f} GB  {file.name}  from {file.repo}@{file.revision[:7]}" for file in missing]
    lines.append(f"{sum(file.size for file in missing) / 1e9:8.2f} GB  to fetch")
    lines += [f"{space.free / 1e9:8.2f} GB  free in {space.folder}" for space in store.space(files)]
    return "\n".join(lines) + "\n"
