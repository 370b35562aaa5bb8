"""Whether two models read token ids alike."""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TypeGuard

from specgguf.models.gguf import Header, MalformedError, Value

MAX_DIFFERENCES = 5
"""How many differing ids a report names."""

MAX_PADDING = 128
"""How many ids one vocabulary may have more than the other: llama.cpp's own bound."""

_ROLES = ("bos", "eos", "eot", "unknown", "seperator", "padding")  # the fifth as the GGUF format spells it
_DECISIVE = ("bos", "eos")
_WITHOUT_VOCABULARY = ("none", "no_vocab")
"""Kinds for which llama.cpp makes up as many tokens as the file says, in gigabytes of memory if it says so."""


class Parity(StrEnum):
    """What a comparison of tokenizers came to."""

    IDENTICAL = "identical"
    COMPATIBLE = "compatible"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """What of a tokenizer can matter to a draft: everything that `fingerprint` hashes."""

    model: str
    pre: str
    tokens: Sequence[bytes]
    types: Sequence[int | float | bool]
    merges: Sequence[bytes]
    special: dict[str, int]
    """Ids by role, as far as the file names them."""
    adds: dict[str, bool | None]
    """Whether BOS and EOS are added to a text; None where the file leaves it to the tokenizer's kind."""

    @property
    def fingerprint(self) -> str:
        """A hash of all fields, 16 hexadecimal digits; equal for identical tokenizers only."""
        digest = hashlib.sha256()
        for strings in ([self.model.encode(), self.pre.encode()], self.tokens, self.merges):
            digest.update(struct.pack("<Q", len(strings)))
            digest.update(struct.pack(f"<{len(strings)}Q", *map(len, strings)))
            digest.update(b"".join(strings))
        digest.update(struct.pack(f"<{len(self.types)}d", *self.types))
        digest.update(repr((sorted(self.special.items()), sorted(self.adds.items()))).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ParityReport:
    """`reasons` says what differs; `differences` are the first (id, target's text, draft's text), at most five."""

    verdict: Parity
    num_shared: int
    reasons: list[str]
    differences: list[tuple[int, str, str]]

    @property
    def summary(self) -> str:
        """What differs, with the first differing id and both its texts, in one line."""
        where = ""
        if self.differences:
            token, target, draft = self.differences[0]
            where = f"; first differing id {token}: target {target!r}, draft {draft!r}"
        return "; ".join(self.reasons) + where


def read_tokenizer(header: Header) -> Tokenizer:
    """The tokenizer described by a GGUF header; raises MalformedError if there is none."""
    metadata = header.metadata
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not _is_strings(tokens):
        raise MalformedError("it has no vocabulary")
    special = {role: metadata.get(f"tokenizer.ggml.{role}_token_id") for role in _ROLES}
    adds = {role: metadata.get(f"tokenizer.ggml.add_{role}_token") for role in _DECISIVE}
    kind = header.text("tokenizer.ggml.model") or ""
    if kind in _WITHOUT_VOCABULARY:
        raise MalformedError("it has no vocabulary")
    if kind == "llama":
        _check_bytes(tokens)
    merges = metadata.get("tokenizer.ggml.merges")
    types = metadata.get("tokenizer.ggml.token_type")
    return Tokenizer(
        model=kind,
        pre=header.text("tokenizer.ggml.pre") or "default",
        tokens=tokens,
        types=types if isinstance(types, tuple) else (),
        merges=merges if _is_strings(merges) else [],
        special={role: value for role, value in special.items() if isinstance(value, int)},
        adds={role: value if isinstance(value, bool) else None for role, value in adds.items()},
    )


def compare(target: Tokenizer, draft: Tokenizer) -> ParityReport:
    """Judge whether `draft` may draft for `target`.

    *Incompatible*, as in llama.cpp's own rule and stricter in one point (it lets the first five ids differ):
    another kind of tokenizer, other text at an id both have, other BOS or EOS, or sizes more than MAX_PADDING
    apart. *Compatible*: ids at the end that only one of them has, or differences that the target's tokenization
    makes irrelevant (the text is always tokenized by the target).
    """
    num_shared = min(len(target.tokens), len(draft.tokens))
    ids = list(islice(_different_ids(target.tokens, draft.tokens), MAX_DIFFERENCES))
    fatal = []
    if target.model != draft.model:
        fatal.append(f"tokenizer kind {target.model!r} against {draft.model!r}")
    if ids and ids[0] < num_shared:
        fatal.append(f"other text at id {ids[0]}")
    fatal += [reason for role in _DECISIVE if (reason := _special_difference(role, target, draft))]
    if abs(len(target.tokens) - len(draft.tokens)) > MAX_PADDING:
        fatal.append(f"{len(target.tokens)} ids against {len(draft.tokens)}")
    minor = []
    if len(target.tokens) != len(draft.tokens):
        minor.append(f"{len(target.tokens)} ids against {len(draft.tokens)}, the rest is padding")
    if target.types[:num_shared] != draft.types[:num_shared]:
        minor.append("token types differ")
    if target.pre != draft.pre:
        minor.append(f"pre-tokenizer {target.pre!r} against {draft.pre!r}")
    if target.merges != draft.merges:
        minor.append("merges differ")
    if (target.special, target.adds) != (draft.special, draft.adds):
        minor.append("other special ids differ")
    differences = [(token, _text(target.tokens, token), _text(draft.tokens, token)) for token in ids]
    if fatal:
        return ParityReport(Parity.INCOMPATIBLE, num_shared, fatal, differences)
    verdict = Parity.COMPATIBLE if minor else Parity.IDENTICAL
    return ParityReport(verdict, num_shared, minor, differences)


def _check_bytes(tokens: Sequence[bytes]) -> None:
    """A SentencePiece vocabulary spells unknown characters byte by byte; llama.cpp aborts if a byte has no token."""
    known = set(tokens)
    for byte in range(256):
        if b"<0x%02X>" % byte not in known and bytes([byte]) not in known:
            raise MalformedError(f"its vocabulary has no token for the byte 0x{byte:02X}")


def _special_difference(role: str, target: Tokenizer, draft: Tokenizer) -> str | None:
    """Why the two would put another token before (BOS) or after (EOS) a text; None if they would not."""
    added = target.adds[role], draft.adds[role]
    if None not in added and added[0] != added[1]:
        return f"{role.upper()} is added by the {'target' if added[0] else 'draft'} only"
    ids = target.special.get(role), draft.special.get(role)
    if ids[0] != ids[1] and added != (False, False):
        return f"{role.upper()} is {ids[0]} against {ids[1]}"
    return None


def _different_ids(one: Sequence[bytes], two: Sequence[bytes]) -> Iterator[int]:
    """Ids with other texts, or that only one of the two has."""
    if one != two:
        shared = min(len(one), len(two))
        yield from (token for token in range(shared) if one[token] != two[token])
        yield from range(shared, max(len(one), len(two)))


def _text(tokens: Sequence[bytes], token: int) -> str:
    return tokens[token].decode("utf-8", "replace") if token < len(tokens) else "(no such id)"


def _is_strings(value: Value | None) -> TypeGuard[list[bytes]]:
    return isinstance(value, list)
