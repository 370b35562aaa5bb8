"""Whether token ids mean the same to two models."""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TypeGuard

from specgguf.headers.gguf import GgufHeader, MalformedError, Value

MAX_DIFFERENCES = 5
"""How many differing ids a report names."""

MAX_PADDING = 128
"""How many more ids one vocabulary may have than the other: llama.cpp's own limit."""

_ROLES = ("bos", "eos", "eot", "unknown", "seperator", "padding")  # spelt as in the GGUF format
_DECISIVE = ("bos", "eos")
_WITHOUT_VOCABULARY = ("none", "no_vocab")
"""Tokenizer types for which llama.cpp makes up as many tokens as the file claims, even if they fill gigabytes."""


class Parity(StrEnum):
    """The result of comparing two tokenizers."""

    IDENTICAL = "identical"
    COMPATIBLE = "compatible"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """All of a tokenizer that can matter to a draft."""

    model: str
    pre: str
    tokens: Sequence[bytes]
    types: Sequence[int | float | bool]
    merges: Sequence[bytes]
    special: dict[str, int]
    """Ids by role (bos, eos, ...), as far as the file has them."""
    adds: dict[str, bool | None]
    """Whether BOS and EOS are added to a text, by role; None where that depends on the type of tokenizer."""

    @property
    def fingerprint(self) -> str:
        """A hash of all fields, 16 hexadecimal digits: the same only for identical tokenizers."""
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
    """How a draft's tokenizer compares with its target's.

    `num_shared` ids exist in both. `reasons` says what differs. `differences` has the first ids with different texts,
    at most MAX_DIFFERENCES: (id, target's text, draft's text).
    """

    verdict: Parity
    num_shared: int
    reasons: list[str]
    differences: list[tuple[int, str, str]]

    @property
    def summary(self) -> str:
        """One line: what differs, and the first differing id with both texts."""
        where = ""
        if self.differences:
            token, target, draft = self.differences[0]
            where = f"; first differing id {token}: target {target!r}, draft {draft!r}"
        return "; ".join(self.reasons) + where


def has_vocabulary(header: GgufHeader) -> bool:
    """Whether a file lists tokens. Some heads do not: theirs are the target's."""
    kind = header.text("tokenizer.ggml.model") or ""
    return _is_strings(header.metadata.get("tokenizer.ggml.tokens")) and kind not in _WITHOUT_VOCABULARY


def read_tokenizer(header: GgufHeader) -> Tokenizer:
    """The tokenizer that a GGUF header describes. Raises MalformedError if there is none that can be used."""
    metadata = header.metadata
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not has_vocabulary(header) or not _is_strings(tokens):
        raise MalformedError("it has no vocabulary")
    special = {role: metadata.get(f"tokenizer.ggml.{role}_token_id") for role in _ROLES}
    adds = {role: metadata.get(f"tokenizer.ggml.add_{role}_token") for role in _DECISIVE}
    kind = header.text("tokenizer.ggml.model") or ""
    named = [token for token in tokens if token]  # llama.cpp gives names to those that have none
    if len(set(named)) != len(named):
        raise MalformedError("two tokens of its vocabulary have the same text")  # llama.cpp aborts
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
    """Judge whether `draft` can draft for `target`.

    *Incompatible*: different types of tokenizer, different texts at one id, different BOS, or sizes more than
    MAX_PADDING apart. llama.cpp lets the first five ids differ, but EOS too must be the same there. *Compatible*: ids
    at the end that only one of them has, or differences that do not matter because the target tokenizes all text, and
    only its end-of-text tokens end one.
    """
    num_shared = min(len(target.tokens), len(draft.tokens))
    ids = list(islice(_different_ids(target.tokens, draft.tokens), MAX_DIFFERENCES))
    fatal = []
    if target.model != draft.model:
        fatal.append(f"tokenizer type {_both(repr(target.model), repr(draft.model))}")
    if ids and ids[0] < num_shared:
        fatal.append(f"different text at id {ids[0]}")
    if reason := _special_difference("bos", target, draft):
        fatal.append(reason)
    if abs(len(target.tokens) - len(draft.tokens)) > MAX_PADDING:
        fatal.append(f"number of ids {_both(len(target.tokens), len(draft.tokens))}")
    minor = []
    if reason := _special_difference("eos", target, draft):
        minor.append(reason)
    if len(target.tokens) != len(draft.tokens):
        minor.append(f"number of ids {_both(len(target.tokens), len(draft.tokens))}, because of padding")
    if target.types[:num_shared] != draft.types[:num_shared]:
        minor.append("token types differ")
    if target.pre != draft.pre:
        minor.append(f"pre-tokenizer {_both(repr(target.pre), repr(draft.pre))}")
    if target.merges != draft.merges:
        minor.append("merges differ")
    if not reason and (target.special, target.adds) != (draft.special, draft.adds):
        minor.append("other special ids differ")
    differences = [(token, _text(target.tokens, token), _text(draft.tokens, token)) for token in ids]
    if fatal:
        return ParityReport(Parity.INCOMPATIBLE, num_shared, fatal, differences)
    verdict = Parity.COMPATIBLE if minor else Parity.IDENTICAL
    return ParityReport(verdict, num_shared, minor, differences)


def _check_bytes(tokens: Sequence[bytes]) -> None:
    """SentencePiece spells unknown characters byte by byte, and llama.cpp aborts if a byte has no token."""
    known = set(tokens)
    for byte in range(256):
        if b"<0x%02X>" % byte not in known and bytes([byte]) not in known:
            raise MalformedError(f"its vocabulary has no token for the byte 0x{byte:02X}")


def _special_difference(role: str, target: Tokenizer, draft: Tokenizer) -> str | None:
    """What differs if the two put different tokens before (BOS) or after (EOS) a text; None if they do not."""
    added = target.adds[role], draft.adds[role]
    if None not in added and added[0] != added[1]:
        return f"only the {'target' if added[0] else 'draft'} adds {role.upper()} to a text"
    ids = target.special.get(role), draft.special.get(role)
    if ids[0] != ids[1] and added != (False, False):
        return f"{role.upper()} is {_both(*ids)}"
    return None


def _different_ids(one: Sequence[bytes], two: Sequence[bytes]) -> Iterator[int]:
    """Ids whose texts differ, or that only one of the two has."""
    if one != two:
        shared = min(len(one), len(two))
        yield from (token for token in range(shared) if one[token] != two[token])
        yield from range(shared, max(len(one), len(two)))


def _both(target: object, draft: object) -> str:
    return f"{target} in the target, {draft} in the draft"


def _text(tokens: Sequence[bytes], token: int) -> str:
    return tokens[token].decode("utf-8", "replace") if token < len(tokens) else "(no such id)"


def _is_strings(value: Value | None) -> TypeGuard[list[bytes]]:
    return isinstance(value, list)
