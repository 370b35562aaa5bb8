"""Everything that can go wrong, as a user sees it.

    SpecggufError           exit 1
    +-- UsageError          exit 2   the command line asks for something that cannot be
    +-- ConfigError                  models.toml or config.toml: a mistake in the file, or an unknown name
    +-- UnknownQuantError            a model has no file of the quantization that was named
    +-- FetchError                   a file could not be brought here, or is not what it should be
    |   +-- UnreachableError         nobody could be asked for it: no network, or not allowed
    +-- EndpointError                a server cannot be measured
    +-- JournalError                 the journal cannot be used
    +-- ModelError                   a file is no usable model
    +-- ParityError                  the draft's tokenizer is not the target's
    +-- ContextError                 the text does not fit, or llama.cpp refused to decode
        +-- ContextFullError         a chat leaves too little room for an answer

Foreign failures become one of these where they enter: in `llama/`, `hub/`, `endpoint.py` and `config.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130
"""The exit code after Ctrl-C, which is no failure."""
TERMINATED = 143
"""The exit code after SIGTERM, which ends the program just as orderly."""


class SpecggufError(Exception):
    """What happened (`message`, naming the file or option) and what to do about it (`hint`).

    `options`: the options whose values it is about, by their long names without dashes.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str, options: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.options = options


class UsageError(SpecggufError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class ConfigError(SpecggufError):
    """models.toml or config.toml has a mistake, or lacks what was named."""


class UnknownQuantError(SpecggufError):
    """A model has no file of the quantization that was named."""


class FetchError(SpecggufError):
    """A file could not be brought here, or is not what it should be."""


class UnreachableError(FetchError):
    """Nobody could be asked for a file: there is no network, or it may not be used."""


class EndpointError(SpecggufError):
    """A server cannot be reached, refuses, or answers otherwise than it should."""


class JournalError(SpecggufError):
    """The journal cannot be written or read."""


class ModelError(SpecggufError):
    """A file is no usable model."""


class ParityError(SpecggufError):
    """The draft's tokenizer is not the target's."""


class ContextError(SpecggufError):
    """The text does not fit the context, or llama.cpp refused to decode."""


class ContextFullError(ContextError):
    """A chat leaves too little of the context for an answer."""


@contextmanager
def about(*options: str) -> Iterator[None]:
    """Errors raised inside are about these options, unless they name others themselves."""
    try:
        yield
    except SpecggufError as error:
        error.options = error.options or options
        raise
