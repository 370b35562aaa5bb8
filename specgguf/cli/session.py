"""A chat, with a person at a terminal or with a script."""

from collections.abc import Callable
from contextlib import closing
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import typer

from specgguf.cli.answer import AnswerWriter, note_end, stream
from specgguf.cli.chat_commands import COMMANDS
from specgguf.cli.journal import Journalist
from specgguf.cli.ngram_store import AnswerStore
from specgguf.cli.options.models import Models
from specgguf.cli.options.output import OutputForm
from specgguf.cli.terminal import output
from specgguf.cli.terminal.reader import Reader
from specgguf.conversation.answer import Answer
from specgguf.conversation.chat import Chat, Turn
from specgguf.engine.engine import Engine
from specgguf.errors import INTERRUPTED, TERMINATED, ContextFullError, SpecggufError, UsageError


class Session:
    """Reads messages and answers them; a line that begins with a slash is a command."""

    def __init__(
        self,
        chat: Chat,
        reader: Reader,
        context: typer.Context,
        open_models: Callable[[Models], Engine],
        answers: AnswerStore,
        journalist: Journalist,
        form: OutputForm,
    ) -> None:
        """`context` knows the options of the command line; `open_models` opens other models with them."""
        self.chat = chat
        self.context = context
        self.open_models = open_models
        self.show_draft = form.show_draft
        self.prepared = ""
        """What a person finds on the line when the next message is read."""
        self._unasked = ""
        """A question that could not be asked. It is put back on the line until a question can be."""
        self.done = False
        self.file: Path | None = None
        """The transcript's own file, which may be overwritten."""
        self.reader = reader
        self._answers = answers
        self._journalist = journalist
        self._show_stats = form.shows_stats

    def run(self) -> None:
        """Until /exit, the end of the input (Ctrl-D), or Ctrl-C twice."""
        leaving = False
        while not self.done:
            try:
                message, self.prepared = self.reader.read(self.prepared), ""
            except EOFError:
                return
            except KeyboardInterrupt:
                if not self.reader.interactive or (leaving and not self.reader.discarded):
                    raise
                leaving = True
                output.note("Ctrl-C again leaves, and so does Ctrl-D")
                continue
            leaving = False
            try:
                self._handle(message)
            # For a person, a mistake or Ctrl-C ends the answer or command, not the chat.
            except SpecggufError as error:
                if not self.reader.interactive:
                    raise
                output.error(error.message, error.hint)
            except KeyboardInterrupt:
                if not self.reader.interactive:
                    raise
                output.note("stopped")
            self.prepared = self._unasked or self.prepared

    def _handle(self, message: str) -> None:
        if not message.startswith("/"):
            self._unasked = message
            self.answer(partial(self._ask, message))
            return
        name, _, argument = message.partition(" ")
        if name not in COMMANDS:
            near = get_close_matches(name, COMMANDS, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else "/help lists the commands"
            raise UsageError(f"unknown command: {name}", f"{hint}; a message may begin with a space")
        command, argument = COMMANDS[name], argument.strip()
        if argument and not command.argument:
            raise UsageError(f"{name} takes no argument", f"type {name} alone; a message may begin with a space")
        command.run(self, argument)

    def _ask(self, message: str, shift: bool) -> Turn:
        turn = self.chat.ask(message, shift)
        self._unasked = ""
        return turn

    def answer(self, begin: Callable[[bool], Turn]) -> None:
        """Take a turn: `begin(True)` may drop the oldest turns for it."""
        try:
            turn = begin(False)
        except ContextFullError as full:
            if not self.reader.interactive or not output.confirm(f"{full.message}. Drop the oldest turns?"):
                raise
            turn = begin(True)
        if turn.dropped:
            oldest = "turn was" if turn.dropped == 1 else f"{turn.dropped} turns were"
            output.note(f"the context was full: the oldest {oldest} dropped")
        generation = turn.generation
        try:
            with closing(turn):
                self._stream(turn.answer)
        finally:
            self._journalist.add(self.chat.engine, generation, mode=self.chat.answering.mode)
        self.chat.stats.add(generation.stats)
        self._answers.add(self.chat.engine, generation)
        answering = self.chat.answering
        note_end(turn.answer, turn.cut, answering.grammar is not None, hides_thought=not answering.think)
        if self._show_stats:
            plain, speed = self.chat.engine.memory.policy.plain_tokens_per_s, generation.timings.tokens_per_s
            compared = [f"about {speed / plain:.2f} times plain decoding"] if plain and speed else []
            output.stats(generation, *compared, f"context {min(turn.used, turn.n_ctx)} of {turn.n_ctx}")
        if generation.finish_reason == "interrupted" and not self.reader.interactive:
            raise typer.Exit(INTERRUPTED)

    def _stream(self, answer: Answer) -> None:
        """Raises SystemExit after SIGTERM; after Ctrl-C the chat goes on."""
        thinks = self.chat.answering.think
        with closing(AnswerWriter(self.show_draft, end_line=True, show_thought=thinks, markdown=True)) as writer:
            code = stream(answer, writer.write)
        if code == TERMINATED:
            raise SystemExit(code)

    def close(self) -> None:
        """Free the models."""
        self.chat.engine.close()
