"""Grammars, with llguidance: which tokens may follow which text."""

import functools
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from specgguf.errors import ContextError, UsageError
from specgguf.llama import gbnf
from specgguf.llama.schema import read_schema
from specgguf.llama.vocab import Vocab
from specgguf.speculative.context import common_prefix

_AT = re.compile(r"(?:at )?(\d+)\(\d+\): ")
_SENTINEL = "\x02"


@dataclass(frozen=True, slots=True)
class GrammarText:
    """A grammar that can be used. No model is needed to check that."""

    definition: str
    """In llguidance's own form."""
    notes: tuple[str, ...] = ()
    """What is not as the user's text says, a line each."""

    @classmethod
    def from_gbnf(cls, text: str) -> Self:
        """Raises UsageError, with the line, if `text` is not GBNF."""
        lark, lines = gbnf.gbnf_to_lark(text)
        grammar = LLMatcher.grammar_from_lark(lark)
        if problem := _check(grammar):
            line, what = _read_problem(problem)
            raise UsageError(f"the grammar, line {lines[(line or 1) - 1] + 1}: {what}", gbnf.NOTATION)
        return cls(grammar)

    @classmethod
    def from_schema(cls, schema: str) -> Self:
        """The grammar of the JSON texts that fit `schema`. Raises UsageError if it cannot be enforced."""
        grammar, notes = read_schema(schema, _check)
        return cls(grammar, tuple(notes))

    @classmethod
    def from_regex(cls, regex: str) -> Self:
        """The texts that match `regex` from their beginning to their end. Raises UsageError if it is none."""
        grammar = LLMatcher.grammar_from_regex(regex)
        if problem := _check(grammar):
            hint = "the notation is that of Rust's regex crate, which has no look-around and no back-references"
            raise UsageError(f"the regular expression: {_read_problem(problem)[1]}", hint)
        return cls(grammar)

    @classmethod
    def from_lark(cls, text: str) -> Self:
        """Raises UsageError, with the line, if `text` is not a grammar in llguidance's kind of Lark."""
        grammar = LLMatcher.grammar_from_lark(text)
        if problem := _check(grammar):
            line, what = _read_problem(problem)
            where = f", line {line}" if line else ""
            raise UsageError(f"the Lark grammar{where}: {what}", "llguidance's docs/syntax.md describes its notation")
        return cls(grammar)

    def begin(self, vocab: Vocab, prompt_length: int) -> "TextGrammar":
        """Start one text: the grammar begins after the prompt. It can be used as long as the vocabulary.

        Raises UsageError if the grammar names tokens that the vocabulary does not have.
        """
        first = LLMatcher(_Tokenizers.of(vocab), self.definition, log_level=0)
        if problem := first.get_error():
            what = _read_problem(problem)[1]
            raise UsageError(f"the grammar is none for this model: {what}", "change the grammar")
        return TextGrammar(first, vocab.num_tokens, prompt_length)


class TextGrammar:
    """A `Grammar` for one text, shared by target and draft.

    What is allowed depends only on the tokens. For speed, the masks along the last text are kept: the target verifies
    at the places where the draft has just asked.
    """

    def __init__(self, first: LLMatcher, num_tokens: int, prompt_length: int) -> None:
        """`first`: the state before the text."""
        self._first = first
        self._num_tokens = num_tokens
        self._prompt_length = prompt_length
        self._output: list[int] = []
        self._masks: dict[int, NDArray[np.bool_]] = {}
        """By the number of tokens of `_output` before them."""
        self._forget()

    def mask(self, tokens: Sequence[int], ahead: Sequence[int] = ()) -> NDArray[np.bool_]:
        """Which tokens may follow, shape (num_tokens,); none after one that does not fit.

        Raises ContextError where the grammar is too complex for its engine.
        """
        kept = list(tokens[self._prompt_length :])
        output = [*kept, *ahead]
        shared = common_prefix(self._output, output)
        if shared < len(output):
            self._masks = {length: mask for length, mask in self._masks.items() if length <= shared}
            self._output = output
        if len(output) not in self._masks:
            self._masks[len(output)] = self._compute(kept, output)
        return self._masks[len(output)]

    def forced(self, tokens: Sequence[int]) -> list[int]:
        """The tokens that follow because nothing else may."""
        state = self._state_after(tokens[self._prompt_length :])
        return [token for token in state.compute_ff_tokens() if token < self._num_tokens] if state else []

    def _compute(self, kept: Sequence[int], output: Sequence[int]) -> NDArray[np.bool_]:
        state = self._state_after(kept)
        if state and len(output) > len(kept):
            state = self._state_ahead(output)
        if not state:
            return np.zeros(self._num_tokens, np.bool_)
        bits = np.frombuffer(state.compute_bitmask(), np.uint8)
        if problem := state.get_error():
            self._forget()
            raise ContextError(f"the grammar cannot go on: {_read_problem(problem)[1]}", "make it simpler")
        return np.unpackbits(bits, count=self._num_tokens, bitorder="little").view(np.bool_)

    # llguidance 1.9.1 allows what does not fit after its `rollback`, so states only go forward, and are copied.

    def _forget(self) -> None:
        self._state, self._held = self._first.deep_copy(), list[int]()
        """After the tokens that stay, and these tokens."""
        self._ahead, self._held_ahead = self._state, list[int]()
        """The same with those that may be taken back."""

    def _state_after(self, kept: Sequence[int]) -> LLMatcher | None:
        """The state after tokens that stay; None if one of them does not fit."""
        if common_prefix(self._held, kept) < len(self._held):
            self._forget()
        read = self._state.try_consume_tokens(list(kept[len(self._held) :]))
        self._held = list(kept[: len(self._held) + read])
        return self._state if len(self._held) == len(kept) else None

    def _state_ahead(self, output: Sequence[int]) -> LLMatcher | None:
        """The same for tokens beyond those that `_state` has read."""
        held = self._held_ahead
        if len(held) <= len(self._held) or common_prefix(held, output) < len(held):
            self._ahead, held = self._state.deep_copy(), self._held
        read = self._ahead.try_consume_tokens(list(output[len(held) :]))
        self._held_ahead = list(output[: len(held) + read])
        return self._ahead if len(self._held_ahead) == len(output) else None


class _Tokenizers:
    """llguidance's view of each vocabulary, made when the first grammar wants it."""

    _made: ClassVar[WeakKeyDictionary[Vocab, LLTokenizer]] = WeakKeyDictionary()

    @classmethod
    def of(cls, vocab: Vocab) -> LLTokenizer:
        """The one of a model's vocabulary, shared by all its texts."""
        if vocab not in cls._made:
            cls._made[vocab] = LLTokenizer(TokenizerWrapper(_Spelling(vocab)), eos_token=sorted(vocab.eog) or None)
        return cls._made[vocab]


class _Spelling:
    """What llguidance asks of a tokenizer.

    A token that prints nothing, or ends the text, is special: it is never a part of a text.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = weakref.proxy(vocab)
        self._pieces = [b"" if token in vocab.eog else vocab.piece(token) for token in range(vocab.num_tokens)]
        self.special_token_ids = [token for token, piece in enumerate(self._pieces) if not piece]
        self.tokens = [piece or vocab.text(token).encode() for token, piece in enumerate(self._pieces)]
        self.eos_token_id = min(vocab.eog, default=None)
        self.bos_token_id = vocab.bos

    def __call__(self, text: str) -> list[int]:
        """The tokens as which the model would read a text in the middle of another."""
        # Some tokenizers put a blank before a text, and some read the name of a control token as that token.
        return self._split("", text) or self._split(_SENTINEL, text) or self._longest(text.encode())

    def _split(self, before: str, text: str) -> list[int]:
        """The tokens of `text` where `before` precedes it; none if they are not just that text."""
        skipped = self._vocab.tokenize(before)
        tokens: list[int] = self._vocab.tokenize(before + text)
        rest = tokens[len(skipped) :]
        same = tokens[: len(skipped)] == skipped and b"".join(self._pieces[token] for token in rest) == text.encode()
        return rest if same else []

    def _longest(self, text: bytes) -> list[int]:
        """The longest token that fits, then the longest one after it, and so on."""
        tokens = []
        while text:
            for end in range(min(len(text), self._most), 0, -1):
                if (token := self._ids.get(text[:end])) is not None:
                    tokens.append(token)
                    text = text[end:]
                    break
            else:
                return []
        return tokens

    @functools.cached_property
    def _ids(self) -> dict[bytes, int]:
        return {piece: token for token, piece in enumerate(self._pieces) if piece}

    @functools.cached_property
    def _most(self) -> int:
        return max(map(len, self._ids))


def _check(grammar: str) -> str:
    """What is wrong with a grammar, or nothing."""
    is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    return str(messages[0]) if is_error else ""


def _read_problem(problem: str) -> tuple[int | None, str]:
    """The line that llguidance names, if any, and what it says without the text around."""
    lines = [line for line in problem.splitlines() if line.strip()] or ["it is refused"]
    found = _AT.match(lines[0])
    what = lines[0][found.end() :] if found else lines[0]
    for line in lines:
        if line.startswith("error: "):
            what = line.removeprefix("error: ")
    return int(found[1]) if found else None, what[:1].lower() + what[1:]
