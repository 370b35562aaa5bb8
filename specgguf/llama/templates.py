"""Turns chat messages into a prompt, with a chat template."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from specgguf.errors import ModelError
from specgguf.llama.vocab import Vocab

Message = Mapping[str, str]
"""`role` (system, user or assistant) and `content`. An answer may have `reasoning_content`, the thought before it; the
template decides whether the prompt has it."""

_PROBE = "specgguf-probe"
_NO_THINKING = {"enable_thinking": False, "thinking": False}
"""Names that templates use for it; a template ignores names that it does not know."""


class ChatTemplate:
    """A Jinja template, from a model's file or from the user."""

    def __init__(self, source: str, name: str, vocab: Vocab) -> None:
        """`name` is what errors call the template. Raises ModelError if `source` is not a template."""
        self._name = name
        try:
            self._formatter = Jinja2ChatFormatter(source, vocab.text(vocab.eos), vocab.text(vocab.bos))
        # A template is a program that others wrote: it may fail in any way.
        except Exception as error:
            raise self._failure(error) from error

    def render(self, messages: Sequence[Message], think: bool = True) -> str:
        """The prompt for the next answer. Raises ModelError, with the template's own message, if the template fails.

        If the template refuses or drops a system message, the user's first message gets its text. `think` False asks
        for an answer without a thought, if the template can.
        """
        if len(messages) > 1 and messages[0]["role"] == "system" and not self._takes_system:
            messages = _merge_system(messages)
        try:
            return self._render(messages, think)
        except Exception as error:
            raise self._failure(error) from error

    @functools.cached_property
    def _takes_system(self) -> bool:
        probe = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "x"}]
        try:
            return _PROBE in self._render(probe, think=True)
        except Exception:
            return False

    def _render(self, messages: Sequence[Message], think: bool) -> str:
        variables: Mapping[str, Any] = {} if think else _NO_THINKING
        return str(self._formatter(messages=[dict(message) for message in messages], **variables).prompt)  # type: ignore[misc]

    def _failure(self, error: Exception) -> ModelError:
        line = getattr(error, "lineno", None)  # a syntax error has one
        return ModelError(
            f"{self._name} fails{f' in line {line}' if line else ''}: {str(error) or type(error).__name__}",
            "give another one with --chat-template FILE, or use specgguf run --raw",
        )


def _merge_system(messages: Sequence[Message]) -> list[Message]:
    system, first, *rest = messages
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]
