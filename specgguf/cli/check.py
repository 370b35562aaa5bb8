"""`specgguf check`: whether a draft fits a target, before anything is downloaded."""

from typing import TYPE_CHECKING, Any

import typer

from specgguf.cli.opening import open_resolver, open_store
from specgguf.cli.options.groups import grouped
from specgguf.cli.options.models import NO_DRAFT, Models, Offline
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
    """Judge whether a draft fits a target; exit code 1 if it does not. Without a draft: the target's own MTP layers.

    Of files that are not here yet only the beginning is read.
    """
    from specgguf.headers.fitting import check_head
    from specgguf.headers.heads import num_nextn_layers
    from specgguf.headers.parity import Parity
    from specgguf.models.files import DerivedFile
    from specgguf.models.hub.headers import read_header

    if models.draft == NO_DRAFT:
        raise UsageError(
            "check compares a draft with its target, and --draft none says there is none",
            "leave --draft out, or name a draft",
            ("draft",),
        )
    store = open_store(offline)
    resolver = open_resolver(store)
    target_file, draft_file = (models.resolve(resolver, role) for role in ("target", "draft"))
    with about(models.option_of("target")):
        target, num_read = read_header(_named(target_file), "target", store)
    if draft_file is None and num_nextn_layers(target.gguf):
        draft_file = target_file
    draft = target
    if draft_file != target_file:
        with about(models.option_of("draft")):
            draft, more = read_header(_named(draft_file), "draft", store)
        num_read += more
    for file in (target_file, draft_file):
        if isinstance(file, DerivedFile) and store.find(file) is None:
            output.note(f"{file.name} has yet to be made, and takes its tokenizer from there")
    report = check_head(target.gguf, draft.gguf)
    if json:
        output.write_json({**_as_dict(report, target, draft), "bytes_read": num_read})
    else:
        output.write(_as_text(report, target, draft))
        if num_read:
            output.note(f"read {num_read / 1e6:.1f} MB from the hub")
    if report.verdict is Parity.INCOMPATIBLE:
        raise typer.Exit(1)


def _named(file: "Path | ModelFile | None") -> "Path | ModelFile":
    if file is None:
        raise UsageError("check needs two models", "give --target and --draft, or --pair", ("pair", "target", "draft"))
    return file


def _as_dict(report: "ParityReport", target: "ModelHeader", draft: "ModelHeader") -> dict[str, Any]:
    from specgguf.headers.heads import kind_of

    differences = [dict(zip(("id", "target", "draft"), entry, strict=True)) for entry in report.differences]
    return {
        "verdict": report.verdict,
        "reasons": report.reasons,
        "num_shared": report.num_shared,
        "differences": differences,
        "target": _facts(target),
        "draft": {"kind": kind_of(draft.gguf, target.gguf), **_facts(draft)},
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
    from specgguf.headers.heads import DraftKind, kind_of

    kind = kind_of(draft.gguf, target.gguf)
    lines = [f"{report.verdict}: {'; '.join(report.reasons) or 'no difference'}"]
    for role, header in (("target", target), ("draft", draft)):
        head = f" ({kind.label})" if role == "draft" and kind is not DraftKind.MODEL else ""
        lines += [f"{role:7s}{header.path}{head}", f"       {_described(header)}"]
    lines += [f"id {token}: target {one!r}, draft {two!r}" for token, one, two in report.differences]
    return "\n".join(lines) + "\n"


def _described(header: "ModelHeader") -> str:
    facts = _facts(header)
    if not facts["num_tokens"]:
        return "takes the target's tokenizer"
    special = ", ".join(f"{name} {token}" for name, token in facts["special"].items())
    return (
        f"{facts['num_tokens']} ids, {facts['tokenizer']}/{facts['pre_tokenizer']}, "
        f"fingerprint {facts['fingerprint']}, {'a' if facts['chat_template'] else 'no'} chat template; {special}"
    )
