"""What a GGUF file says about its model."""

import errno
import mmap
from pathlib import Path
from typing import Self

from specgguf.errors import ModelError
from specgguf.headers import gguf
from specgguf.headers.heads import DraftKind, architecture, kind_of
from specgguf.headers.parity import Tokenizer, has_vocabulary, read_tokenizer
from specgguf.headers.purpose import other_purpose
from specgguf.models.shards import check_parts

_FULL_PRECISION = (0, 1, 32)
"""llama.cpp's numbers for the file types F32, F16 and BF16."""

_SAMPLING: dict[str, tuple[str, type, float, float]] = {
    "temp": ("temperature", float, 0.0, 100.0),
    "top_k": ("top_k", int, 0, 2**31),
    "top_p": ("top_p", float, 0.0, 1.0),
    "min_p": ("min_p", float, 0.0, 1.0),
    "penalty_repeat": ("repeat_penalty", float, 0.01, 100.0),
}
"""By their names in a file: the fields of `Sampler`, with the types and bounds of the options."""

_NO_TOKENIZER = Tokenizer("none", "default", (), (), (), {}, {"bos": None, "eos": None})


def _hint_of(buffer: gguf.Buffer) -> str | None:
    """What to do about a file that stands in the place of a model's; None where it may be one."""
    begin = bytes(buffer[:256]).lstrip().lower()
    if begin.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, which only names the model: run git lfs pull there, or fetch the file itself"
    if begin.startswith((b"<!doctype html", b"<html", b"<?xml")):
        return (
            "it is a web page that was saved in the model's place: fetch the file itself, from the page's download link"
        )
    if begin.startswith((b"{", b"entry not found", b"invalid username", b"access to model")):
        return "it is a server's answer that was saved in the model's place: fetch the file again"
    return None


class ModelHeader:
    """Kind, tokenizer, chat template, name and sampling settings of a model. Reading them takes milliseconds.

    `path` is where the file is, or its name on the hub; `role` (target or draft) is what errors call it.
    """

    def __init__(self, path: Path, role: str, buffer: gguf.Buffer) -> None:
        """Read a whole file or its beginning.

        Raises ModelError if it is not a usable GGUF file, or a draft head where a target is needed;
        gguf.TruncatedError if `buffer` ends inside the header.
        """
        self.path = path
        self.role = role
        try:
            header = gguf.parse(buffer)
            self.kind = kind_of(header)
            """What it is as a draft. A target is always a MODEL, even if it has MTP layers too."""
            if role == "target" and self.kind is not DraftKind.MODEL:
                raise ModelError(
                    f"target model: {path} is a draft head ({self.kind.label}): no model that generates text by itself",
                    "give it as --draft, and the model that it was made for as --target",
                )
            purpose = other_purpose(header) if self.kind is DraftKind.MODEL else None
            if purpose:
                raise ModelError(
                    f"{role} model: {path} does not generate text token by token: it is {purpose}",
                    "give a language model",
                )
            if header.number(f"{architecture(header)}.rope.dimension_count") == 0:
                raise gguf.MalformedError("its rope.dimension_count is 0")  # llama.cpp would never come to an end
            takes_tokenizer = self.kind is not DraftKind.MODEL and not has_vocabulary(header)
            self.tokenizer = _NO_TOKENIZER if takes_tokenizer else read_tokenizer(header)
            """Without any tokens for a head that takes its target's."""
        except gguf.TruncatedError:
            raise
        except gguf.MalformedError as error:
            hint = _hint_of(buffer) or "give a .gguf file of a language model"
            raise ModelError(f"{role} model: {path} is not a usable GGUF file: {error}", hint) from None
        self.gguf = header
        self.chat_template = header.text("tokenizer.chat_template")
        self.name = header.text("general.name") or path.name
        self.is_full_precision = header.metadata.get("general.file_type") in _FULL_PRECISION
        """Whether its weights were never quantized."""
        self.sampling: dict[str, float] = {}
        """The settings that the model's authors recommend, by their names in `Sampler`; often none."""
        self.odd_sampling: list[str] = []
        """Those that no option allows, as text."""
        for key, (field, kind, least, most) in _SAMPLING.items():
            value = header.metadata.get(f"general.sampling.{key}")
            if isinstance(value, int | float) and least <= value <= most and (kind is float or value == int(value)):
                self.sampling[field] = kind(value)
            elif value is not None:
                self.odd_sampling.append(f"{field.replace('_', '-')} {value!r}")

    @classmethod
    def of_file(cls, path: Path, role: str) -> Self:
        """Read a file on disk. Raises ModelError if it is missing, truncated, or not a usable GGUF file."""
        try:
            if path.exists() and not path.is_file():
                raise OSError(errno.EINVAL, "it is not a regular file")
            size = path.stat().st_size
            with path.open("rb") as file:
                buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
            header = cls(path, role, buffer)
            if header.gguf.data_end > size:
                raise gguf.TruncatedError(f"it has {size} bytes, and its last tensor starts after that")
            check_parts(path, role, header.gguf)
        except FileNotFoundError:
            raise ModelError(
                f"{role} model: no such file: {path}",
                "check the path; a repository on the hub is written hf:owner/repo; specgguf pairs lists known models",
            ) from None
        except OSError as error:
            raise ModelError(
                f"{role} model: cannot read {path}: {error.strerror}", "check the path and its permissions"
            ) from None
        except gguf.TruncatedError as error:
            raise ModelError(
                f"{role} model: {path} is truncated or damaged: {error}", "download or copy it again"
            ) from None
        return header
