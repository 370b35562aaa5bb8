"""What was said in a chat, and the file that keeps it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specgguf.errors import UsageError
from specgguf.text import jsontext

FORMAT = 1
_NUMBERS = (
    *("temperature", "top_p", "min_p", "typical_p"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty"),
)
_COUNTS = ("top_k", "seed")
SAMPLING = (*_NUMBERS, *_COUNTS)
"""The names under which a transcript keeps how tokens are chosen: those of `Sampler`."""
_MODELS = ("pair", "target", "draft", "quant", "draft_quant")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer, empty as long as nothing was answered; `thought` is what came before it."""

    question: str
    answer: str = ""
    thought: str = ""


@dataclass(slots=True)
class Transcript:
    """A chat as a file keeps it: only what was set of `sampling`, and the options that named the `models`."""

    system: str = ""
    exchanges: Sequence[Exchange] = ()
    sampling: dict[str, Any] = field(default_factory=dict)
    models: dict[str, str | None] = field(default_factory=dict)

    def messages(self) -> list[dict[str, str]]:
        """As chat templates, and other programs, take them."""
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for exchange in self.exchanges:
            messages.append({"role": "user", "content": exchange.question})
            if exchange.answer:
                thought = {"reasoning_content": exchange.thought} if exchange.thought else {}
                messages.append({"role": "assistant", "content": exchange.answer, **thought})
        return messages

    def dump(self) -> str:
        """The file's text."""
        content = {"format": FORMAT, "models": self.models, "sampling": self.sampling, "messages": self.messages()}
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def load(path: Path) -> Transcript:
    """What was dumped there; raises UsageError if it is no transcript."""
    try:
        content = jsontext.parse(path.read_text(encoding="utf-8"), names=["models"])
        if content["format"] != FORMAT:
            raise UsageError(f"{path} has format {content['format']}, this program reads {FORMAT}", "start a new chat")
        system, exchanges = _exchanges(content["messages"])
        sampling, models = dict(content["sampling"]), dict(content["models"])
        _expect(models.keys() <= set(_MODELS), "models")
        _expect(all(isinstance(name, str | None) for name in models.values()), "models")
        for name, value in sampling.items():
            kind = int | float if name in _NUMBERS else int
            _expect(name in SAMPLING and isinstance(value, kind) and not isinstance(value, bool), f"sampling.{name}")
        return Transcript(system, exchanges, sampling, models)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "check the path") from None
    except UnicodeError:
        raise _damaged(path, "it is not UTF-8 text") from None
    except KeyError as error:
        raise _damaged(path, f"it has no {error}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise _damaged(path, str(error) if isinstance(error, ValueError) else "its form is another") from None


def _exchanges(messages: Any) -> tuple[str, list[Exchange]]:  # noqa: ANN401 (JSON)
    """The system message, and questions with their answers; raises ValueError where they do not take turns."""
    system = ""
    exchanges: list[Exchange] = []
    for number, message in enumerate(messages):
        role, content = message["role"], message["content"]
        thought = message.get("reasoning_content", "")
        where = f"messages[{number}]"
        _expect(isinstance(content, str) and isinstance(thought, str), where)
        if role == "system":
            _expect(number == 0, where)
            system = content
        elif role == "user":
            _expect(not exchanges or exchanges[-1].answer != "", where)
            exchanges.append(Exchange(content))
        else:
            _expect(role == "assistant" and bool(exchanges) and exchanges[-1].answer == "" != content, where)
            exchanges[-1] = Exchange(exchanges[-1].question, content, thought)
    return system, exchanges


def _expect(condition: bool, where: str) -> None:
    if not condition:
        raise ValueError(f"{where} is not as it should be")


def _damaged(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} is no transcript: {reason}", "transcripts are written by /save in specgguf chat")
