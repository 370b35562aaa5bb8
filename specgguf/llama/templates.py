"""Turns chat messages into a prompt, with a chat template."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from specgguf.errors import ModelError
from specgguf.llama.bounds import MAX_BYTES, MAX_S, bounded
from specgguf.llama.vocab import Vocab

T = TypeVar("T")

Message = Mapping[str, str]
"""`role` (system, user or assistant) and `content`. An answer may have `reasoning_content`, the thought before it; the
template decides whether the prompt has it."""

_PROBE = "specgguf-probe"
_PARTS = [{"type": "text", "text": _PROBE}]
_PROBES: Mapping[str, Sequence[Message]] = {
    "user": [{"role": "user", "content": _PROBE}],
    "system": [{"role": "system", "content": _PROBE}, {"role": "user", "content": "x"}],
    "assistant": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": _PROBE},
        {"role": "user", "content": "x"},
    ],
}
"""By role: a conversation that shows what becomes of its content."""
_NO_THINKING = {"enable_thinking": False, "thinking": False}
"""Names that templates use for it; a template ignores names that it does not know."""
_HINT = "give another one with --chat-template FILE, or use specgguf run --raw"


class ChatTemplate:
    """A Jinja template, from a model's file or from the user. Some want contents as texts, some want them in parts."""

    def __init__(self, source: str, name: str, vocab: Vocab) -> None:
        """`name` is what errors call the template. Raises ModelError if `source` is not a template."""
        self._name = name
        self._in_parts: dict[str, bool | None] = {}
        eos, bos = vocab.text(vocab.eos), vocab.text(vocab.bos)
        self._formatter = self._guarded(lambda: bounded(lambda: Jinja2ChatFormatter(source, eos, bos)))

    def render(self, messages: Sequence[Message], think: bool = True) -> str:
        """The prompt for the next answer. Raises ModelError, with the template's own message, where that fails, and
        one where the last question is not in the prompt.

        If the template refuses or drops a system message, the user's first message gets its text. `think` False asks
        for an answer without a thought, if the template can.
        """
        prompt = self._guarded(lambda: self._render(self._prepared(messages), think))
        question = next((message["content"] for message in reversed(messages) if message["role"] == "user"), "")
        if not prompt.strip():
            raise ModelError(f"{self._name} gives nothing: the prompt would be empty", _HINT)
        if not _holds(prompt, question):
            others = [{**message, "content": _PROBE} for message in messages]
            if self._guarded(lambda: self._render(others, think)) == prompt:
                raise ModelError(f"{self._name} never uses the messages: the question is not in the prompt", _HINT)
            raise ModelError(f"{self._name} leaves the question out, or changes it", _HINT)
        return prompt

    def _prepared(self, messages: Sequence[Message]) -> list[Mapping[str, Any]]:
        """With a system message only where it has a place, and contents as they are wanted."""
        if len(messages) > 1 and messages[0]["role"] == "system" and self._wants_parts("system") is None:
            messages = _merge_system(messages)
        return [_in_parts(message) if self._wants_parts(message["role"]) else message for message in messages]

    def _wants_parts(self, role: str) -> bool | None:
        """Whether contents of this role get into the prompt in parts only; None if they never do."""
        if role not in self._in_parts:
            before = {} if role == "user" else {"user": self._wants_parts("user")}
            found = (wants for wants in (False, True) if self._shows(role, {**before, role: wants}))
            self._in_parts[role] = next(found, None)
        return self._in_parts[role]

    def _shows(self, role: str, in_parts: Mapping[str, bool | None]) -> bool:
        probe = [_in_parts(message) if in_parts.get(message["role"]) else message for message in _PROBES[role]]
        try:
            prompt = self._render(probe, think=True)
        except (TimeoutError, MemoryError):
            raise
        except Exception:
            return False
        return _PROBE in prompt and str(_PARTS) not in prompt  # printed as it is, a list has no place

    def _render(self, messages: Sequence[Mapping[str, Any]], think: bool) -> str:
        variables: Mapping[str, Any] = {} if think else _NO_THINKING
        given: Any = [dict(message) for message in messages]
        return bounded(lambda: str(self._formatter(messages=given, **variables).prompt))

    def _guarded(self, work: Callable[[], T]) -> T:
        """A template is a program that others wrote: it may fail in any way."""
        try:
            return work()
        except TimeoutError:
            raise ModelError(f"{self._name} does not come to an end: it took more than {MAX_S:.0f} s", _HINT) from None
        except MemoryError:
            raise ModelError(f"{self._name} takes more than {MAX_BYTES >> 20} MiB of memory", _HINT) from None
        except Exception as error:
            line = getattr(error, "lineno", None)  # a syntax error has one
            where, reason = f" in line {line}" if line else "", str(error) or type(error).__name__
            raise ModelError(f"{self._name} fails{where}: {reason}", _HINT) from error


def _merge_system(messages: Sequence[Message]) -> list[Message]:
    system, first, *rest = messages
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]


def _in_parts(message: Message) -> Mapping[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _holds(prompt: str, text: str) -> bool:
    """Whether a text is in the prompt; templates may cut and change white space, and some write JSON."""
    if text.strip() in prompt:
        return True
    squeezed = "".join(prompt.split())
    forms = (text, *(json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)))
    return any("".join(form.split()) in squeezed for form in forms)
