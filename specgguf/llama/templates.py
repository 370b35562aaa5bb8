"""Chat messages to a prompt, by the model's own template."""

from collections.abc import Sequence
from typing import Any

from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from specgguf.errors import ModelError
from specgguf.llama.model import Model

Message = dict[str, str]
"""`role` (system, user or assistant) and `content`."""


def render(model: Model, messages: Sequence[Message]) -> str:
    """The prompt for the next answer; raises ModelError if the template is missing, broken or refuses."""
    template = model.header.chat_template
    if template is None:
        raise ModelError(f"{model.header.path} has no chat template", "use --raw to give it the text as it is")
    vocab = model.vocab
    try:
        formatter = Jinja2ChatFormatter(template, vocab.text(vocab.eos), vocab.text(vocab.bos))
        prompt: Any = formatter(messages=list(messages)).prompt  # type: ignore[arg-type]
    # A template is a program of its author: it may fail in any way.
    except Exception as error:
        raise ModelError(
            f"the chat template of {model.header.path} fails: {str(error) or type(error).__name__}",
            "use --raw to give the model the text as it is",
        ) from error
    return str(prompt)
