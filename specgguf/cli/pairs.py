"""`specgguf pairs`: the catalogue, what of it is on this machine, and which drafts fit a target."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli.completion import pair_names, references
from specgguf.cli.opening import open_resolver, open_store
from specgguf.cli.options.models import Offline
from specgguf.cli.options.output import Json, Yes
from specgguf.cli.terminal import output
from specgguf.errors import UsageError

if TYPE_CHECKING:
    from specgguf.models.catalogue import Catalogue
    from specgguf.models.files import ModelFile
    from specgguf.models.hub.store import Store
    from specgguf.models.pairing import Candidate
    from specgguf.models.references import Resolver


def pairs(
    target: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="REF",
            help="List the drafts that fit this target, and why others don't.",
            autocompletion=references,
        ),
    ] = None,
    remove: Annotated[
        str | None,
        typer.Option(
            "--remove",
            metavar="NAME",
            help="Delete the files of this pair that no other one on disk uses.",
            autocompletion=pair_names,
        ),
    ] = None,
    here: Annotated[
        bool,
        typer.Option("--here", help="List the models on this machine, other programs' too, and what drafts for each."),
    ] = False,
    yes: Yes = False,
    offline: Offline = False,
    json: Json = False,
) -> None:
    """List the pairs of models.toml: what they are for, their sizes, and what is on this machine."""
    if sum(map(bool, (target, remove, here))) > 1:
        raise UsageError("--for, --here and --remove exclude each other", "give one of them")
    store = open_store(offline)
    resolver = open_resolver(store)
    if remove:
        _remove(resolver.catalogue, store, remove, yes, json)
    elif target:
        _show_drafts(resolver, store, target, json)
    elif here:
        _show_here(resolver.catalogue, store, json)
    else:
        _show_pairs(resolver.catalogue, store, json)


def _show_pairs(catalogue: "Catalogue", store: "Store", json: bool) -> None:
    rows = [_row(catalogue, store, name) for name in catalogue.pairs]
    if json:
        output.write_json(rows)
        return
    cells = [
        [
            f"{'*' if row['default'] else ' '} {row['name']}",
            f"{row['target']['size'] / 1e9:5.1f} + {row['draft']['size'] / 1e9:3.1f}",
            _roles_on_disk(row),
            row["purpose"],
        ]
        for row in rows
    ]
    output.table([["  pair", "GB target + draft", "here", "for"], *cells], left=4)


def _row(catalogue: "Catalogue", store: "Store", name: str) -> dict[str, Any]:
    from specgguf.models.hub.store import size_of

    pair = catalogue.pairs[name]
    row: dict[str, Any] = {"name": name, "default": name == catalogue.default, "purpose": pair.purpose}
    for role, reference in (("target", pair.target), ("draft", pair.draft)):
        file = catalogue.file(reference)
        path = store.find(file)
        size = 0 if role == "draft" and pair.is_one_file else size_of(path or file)
        row[role] = {"reference": reference, "size": size, "path": str(path) if path else None}
    return row


def _roles_on_disk(row: dict[str, Any]) -> str:
    here = [role for role in ("target", "draft") if row[role]["path"]]
    return {0: "", 1: f"{here[0] if here else ''} only", 2: "on disk"}[len(here)]


def _show_drafts(resolver: "Resolver", store: "Store", reference: str, json: bool) -> None:
    from specgguf.models.hub.headers import read_header
    from specgguf.models.pairing import candidates

    header, _ = read_header(resolver.resolve(reference), "target", store)
    found = sorted(
        candidates(header, resolver.catalogue, store, on_disk_only=False),
        key=lambda candidate: (not candidate.fits, candidate.size),
    )
    if json:
        output.write_json([_judged(candidate) for candidate in found])
        return
    cells = [
        [
            candidate.reference,
            f"{candidate.size / 1e9:4.1f}",
            "on disk" if candidate.path else "",
            candidate.report.verdict if candidate.report else "not judged",
            candidate.problem or _kind(candidate),
        ]
        for candidate in found
    ]
    output.table([["draft", "GB", "here", "tokenizer", "why not, or what it is"], *cells], left=5)


def _show_here(catalogue: "Catalogue", store: "Store", json: bool) -> None:
    from specgguf.models.pairing import models_here

    found = models_here(catalogue, store)
    if json:
        output.write_json(
            [{**asdict(model), "path": str(model.path), "remark": model.remark or None} for model in found]
        )
        return
    cells = [[model.reference, f"{model.size / 1e9:4.1f}", model.draft or "", model.remark] for model in found]
    output.table([["model", "GB", "draft that fits", ""], *cells], left=4)


def _kind(candidate: "Candidate") -> str:
    """What kind of head it is; empty for a model."""
    from specgguf.headers.heads import DraftKind

    return "" if candidate.kind in (None, DraftKind.MODEL) else candidate.kind.label


def _judged(candidate: "Candidate") -> dict[str, Any]:
    return {
        "reference": candidate.reference,
        "size": candidate.size,
        "path": str(candidate.path) if candidate.path else None,
        "kind": candidate.kind,
        "verdict": candidate.report.verdict if candidate.report else None,
        "problem": candidate.problem or None,
    }


def _remove(catalogue: "Catalogue", store: "Store", name: str, yes: bool, json: bool) -> None:
    """Delete the files of a pair, except those of another pair whose files are all on this machine."""
    files = _files(catalogue, name)
    needed: dict[object, str] = {}
    for other in catalogue.pairs:
        others = _files(catalogue, other)
        if other != name and all(store.find(file) for file in others):
            needed |= {part: other for file in others for part in file.hub_files}
    removable = []
    for file in files:
        path, users = store.find(file), {needed[part] for part in file.hub_files if part in needed}
        if path and users:
            output.note(f"{path} stays: {', '.join(sorted(users))} uses it")
        elif path:
            removable.append((file, path))
    if not removable:
        output.note(f"nothing of {name} is on this machine that could be removed")
        return
    listed = "".join(f"\n  {path} ({path.stat().st_size / 1e9:.2f} GB)" for _, path in removable)
    if yes or output.confirm(f"Delete{listed}\n?"):
        for file, path in removable:
            store.remove(file)
            if not json:
                output.write(f"{path}\n")
        if json:
            output.write_json([str(path) for _, path in removable])


def _files(catalogue: "Catalogue", name: str) -> "list[ModelFile]":
    pair = catalogue.pair(name)
    return [catalogue.file(reference) for reference in dict.fromkeys((pair.target, pair.draft))]
