"""Models that other programs have put here: Ollama, LM Studio, Jan, GPT4All and llama.cpp. They are only read.

The one module that knows these programs' folders.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specgguf.errors import ModelError

PROGRAMS = ("ollama", "lmstudio", "jan", "gpt4all", "llama.cpp")
"""What their references begin with, before a colon."""

_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_LAYER = "application/vnd.ollama.image."
_DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Found:
    """A model of another program."""

    reference: str
    path: Path
    problem: str = ""
    """Why it cannot be used; empty if it can."""
    remark: str = ""
    """What of it is not used."""


def models() -> list[Found]:
    """All that there are, program by program."""
    return [found for program in PROGRAMS for found in _models(program)]


def find(reference: str) -> Path | None:
    """The file that PROGRAM:NAME means, or ollama:NAME without the tag `latest`; None for any other reference.

    Raises ModelError if the program does not have it, or if it is no GGUF model.
    """
    program, _, name = reference.partition(":")
    if program not in PROGRAMS:
        return None
    known = list(_models(program))
    wanted = {reference, f"{reference}:latest"} if program == "ollama" else {reference}
    for found in known:
        if found.reference in wanted:
            if found.problem:
                raise ModelError(f"{found.reference}: {found.problem}", "specgguf pairs --here lists what can be used")
            return found.path
    listed = ", ".join(found.reference for found in known) or f"nothing of {program}'s is on this machine"
    raise ModelError(f"{program} has no {name or 'model without a name'}", f"there is: {listed}" if known else listed)


def _models(program: str) -> Iterator[Found]:
    seen = set[str]()
    for folder in _folders(program):
        found = _of_ollama(folder) if program == "ollama" else _of_folder(program, folder)
        for one in sorted(found, key=lambda one: one.reference):
            if one.reference not in seen:
                seen.add(one.reference)
                yield one


def _folders(program: str) -> list[Path]:
    home, variable = _home(), os.environ.get
    if home is None:
        return []
    support = home / "Library/Application Support"
    hub = variable("HF_HUB_CACHE") or variable("HUGGINGFACE_HUB_CACHE")
    hub = hub or str(Path(variable("HF_HOME") or home / ".cache/huggingface") / "hub")
    own = variable("OLLAMA_MODELS" if program == "ollama" else "LLAMA_CACHE")
    folders: dict[str, list[Path]] = {
        "ollama": [Path(own)] if own else [home / ".ollama/models", Path("/usr/share/ollama/.ollama/models")],
        "lmstudio": [home / ".lmstudio/models", home / ".cache/lm-studio/models"],
        "jan": [home / ".local/share/Jan/data/llamacpp/models", support / "Jan/data/llamacpp/models"],
        "gpt4all": [home / ".local/share/nomic.ai/GPT4All", support / "nomic.ai/GPT4All"],
        "llama.cpp": [
            *([Path(own)] if own else []),
            Path(hub),
            home / ".cache/llama.cpp",
            home / "Library/Caches/llama.cpp",
            Path(variable("LOCALAPPDATA") or home / "AppData/Local") / "llama.cpp",
        ],
    }
    return [folder.expanduser() for folder in folders[program]]


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def _of_folder(program: str, folder: Path) -> Iterator[Found]:
    """Files by their names, in llama.cpp's cache and the hub's by repository too."""
    for path in folder.rglob("*.gguf"):
        parts = path.relative_to(folder).with_suffix("").parts
        if _LATER_PART.search(path.name) or not path.is_file():
            continue
        if parts[0].startswith("models--"):  # the hub's layout: models--OWNER--NAME/snapshots/REVISION/...
            parts = (*parts[0].split("--")[1:], *parts[3:])
        elif program == "jan" and parts[-1] == "model" and len(parts) > 1:
            parts = parts[:-1]
        projector = "a projector for images, no model" if "mmproj" in path.name.lower() else ""
        yield Found(f"{program}:{'/'.join(parts)}", path, projector)


def _of_ollama(folder: Path) -> Iterator[Found]:
    """`manifests/HOST/NAMESPACE/MODEL/TAG` names layers, `blobs/sha256-DIGEST` are their bytes."""
    for manifest in (folder / "manifests").rglob("*"):
        if not manifest.is_file():
            continue
        *where, model, tag = manifest.relative_to(folder / "manifests").parts
        where = where[1:] if where[:1] == ["registry.ollama.ai"] else where
        where = where[1:] if where[:1] == ["library"] else where
        reference = f"ollama:{'/'.join([*where, model])}:{tag}"
        try:
            layers = [
                (str(layer["mediaType"]).removeprefix(_LAYER), str(layer["digest"]))
                for layer in json.loads(manifest.read_text(encoding="utf-8"))["layers"]
            ]
        except (OSError, ValueError, KeyError, TypeError):
            yield Found(reference, manifest, "its manifest is damaged")
            continue
        yield _manifest(reference, folder, manifest, layers)


def _manifest(reference: str, folder: Path, manifest: Path, layers: list[tuple[str, str]]) -> Found:
    blobs = {kind: folder / "blobs" / digest.replace(":", "-") for kind, digest in layers if _DIGEST.fullmatch(digest)}
    kinds, path = [kind for kind, _ in layers], blobs.get("model", manifest)
    if "model" not in blobs:
        what = "its tensors are in another format" if "tensor" in kinds else "it has no model of its own"
        return Found(reference, path, f"no GGUF file: {what}")
    if not path.is_file():
        return Found(reference, path, f"{path} is missing")
    if kinds.count("model") > 1:
        return Found(reference, path, "a model in several files")
    if "adapter" in kinds:
        return Found(reference, path, "it has an adapter, which specgguf cannot apply")
    return Found(reference, path, remark="without its projector: text only" if "projector" in kinds else "")
