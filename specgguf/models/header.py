"""What a GGUF file says about its model."""

import errno
import mmap
from pathlib import Path
from typing import Self

from specgguf.errors import ModelError
from specgguf.headers import gguf
from specgguf.headers.heads import DraftKind, kind_of
from specgguf.headers.parity import Tokenizer, has_vocabulary, read_tokenizer

_FULL_PRECISION = (0, 1, 32)
"""llama.cpp's numbers for the file types F32, F16 and BF16."""

_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
}


_NO_TOKENIZER = Tokenizer("none", "default", (), (), (), {}, {"bos": None, "eos": None})


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
            takes_tokenizer = self.kind is not DraftKind.MODEL and not has_vocabulary(header)
            self.tokenizer = _NO_TOKENIZER if takes_tokenizer else read_tokenizer(header)
            """Without any tokens for a head that takes its target's."""
        except gguf.TruncatedError:
            raise
        except gguf.MalformedError as error:
            raise ModelError(
                f"{role} model: {path} is not a usable GGUF file: {error}", "give a .gguf file of a language model"
            ) from None
        self.gguf = header
        self.chat_template = header.text("tokenizer.chat_template")
        self.name = header.text("general.name") or path.name
        self.is_full_precision = header.metadata.get("general.file_type") in _FULL_PRECISION
        """Whether its weights were never quantized."""
        self.sampling = {
            field: value
            for key, field in _SAMPLING.items()
            if isinstance(value := header.metadata.get(f"general.sampling.{key}"), int | float)
        }
        """The settings that the model's authors recommend, by their names in `Sampler`; often none."""

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
