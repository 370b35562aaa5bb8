"""`specgguf check`: whether a draft fits a target, before anything is downloaded."""

from typing import TYPE_CHECKING, Any

import typer

from specgguf.cli.opening import open_resolver, open_store
from specgguf.cli.options.groups import grouped
from specgguf.cli.options.models import Models, Offline
from specgguf.cli.options.output import Json
from specgguf.cli.terminal import output
from specgguf.errors import UsageError, about

if TYPE_CHECKING:
    from pathlib import Path

    from specgguf.headers.parity import ParityReport
    from specgguf.models.files import ModelFile
    from specgguf.models.header import ModelHeader


@grouped
def check(
    models: Models,
    offline: Offline = False,
    json: Json = False,
) -> None:
    """Compare the tokenizers of a target and a draft; exit code 1 if they do not fit.

    Of files that are not here yet only the beginning is read.
    """
    from specgguf.headers.parity import Parity, compare
    from specgguf.models.files import DerivedFile
    from specgguf.models.hub.headers import read_header

    store = open_store(offline)
    resolver = open_resolver(store)
    files = {role: models.resolve(resolver, role) for role in ("target", "draft")}
    headers = []
    for role, file in files.items():
        with about(models.option_of(role)):
            headers.append(read_header(_named(file), role, store))
    (one, read_one), (two, read_two) = headers
    for file in files.values():
        if isinstance(file, DerivedFile) and store.find(file) is None:
            output.note(f"{file.name} has yet to be made, and takes its tokenizer from there")
    report = compare(one.tokenizer, two.tokenizer)
    if json:
        output.write_json({**_as_dict(report, one, two), "bytes_read": read_one + read_two})
    else:
        output.write(_as_text(report, one, two))
        if read_one + read_two:
            output.note(f"read {(read_one + read_two) / 1e6:.1f} MB from the hub")
    if report.verdict is Parity.INCOMPATIBLE:
        raise typer.Exit(1)


def _named(file: "Path | ModelFile | None") -> "Path | ModelFile":
    if file is None:
        raise UsageError("check needs two models", "give --target and --draft, or --pair", ("pair", "target", "draft"))
    return file


def _as_dict(report: "ParityReport", target: "ModelHeader", draft: "ModelHeader") -> dict[str, Any]:
    differences = [dict(zip(("id", "target", "draft"), entry, strict=True)) for entry in report.differences]
    return {
        "verdict": report.verdict,
        "reasons": report.reasons,
        "num_shared": report.num_shared,
        "differences": differences,
        "target": _facts(target),
        "draft": _facts(draft),
    }


def _facts(header: "ModelHeader") -> dict[str, Any]:
    tokenizer = header.tokenizer
    return {
        "name": header.name,
        "path": str(header.path),
        "fingerprint": tokenizer.fingerprint,
        "num_tokens": len(tokenizer.tokens),
        "tokenizer": tokenizer.model,
        "pre_tokenizer": tokenizer.pre,
        "special": tokenizer.special,
        "adds": tokenizer.adds,
        "chat_template": header.chat_template is not None,
    }


def _as_text(report: "ParityReport", target: "ModelHeader", draft: "ModelHeader") -> str:
    lines = [f"{report.verdict}: {'; '.join(report.reasons) or 'no difference'}"]
    for role, header in (("target", target), ("draft", draft)):
        facts = _facts(header)
        special = ", ".join(f"{name} {token}" for name, token in facts["special"].items())
        lines += [
            f"{role:7s}{facts['path']}",
            f"       {facts['num_tokens']} ids, {facts['tokenizer']}/{facts['pre_tokenizer']}, "
            f"fingerprint {facts['fingerprint']}, {'a' if facts['chat_template'] else 'no'} chat template; {special}",
        ]
    lines += [f"id {token}: target {one!r}, draft {two!r}" for token, one, two in report.differences]
    return "\n".join(lines) + "\n"
