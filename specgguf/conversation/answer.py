"""An answer as it comes, its thought apart."""

from collections.abc import Iterator

from specgguf.engine.generation import Generation
from specgguf.text.thought import Said, ThoughtStream, split


class Answer:
    """Iterate to get the pieces of an answer, each with the name of the drafter that guessed it ("" for none)."""

    def __init__(self, generation: Generation, prompt: str | None) -> None:
        """`prompt`: what is answered; None if all of the text is answer."""
        self.generation = generation
        self._prompt = prompt
        self._thoughts = ThoughtStream(prompt)

    def __iter__(self) -> Iterator[tuple[Said, str]]:
        for piece in self.generation.pieces():
            yield self._thoughts.feed(piece.text), piece.source
        yield self._thoughts.flush(), ""

    def rest(self) -> Iterator[tuple[Said, str]]:
        """After an interruption: what was generated but not yielded yet."""
        yield self._thoughts.feed(self.generation.flush()), ""
        yield self._thoughts.flush(), ""

    def split(self) -> Said:
        """Thought and answer of the text so far, without the white space around them."""
        return split(self.generation.text, self._prompt)

    @property
    def text(self) -> str:
        """The text so far: without the thought and the white space around it, but untouched where all is answer."""
        return self.generation.text if self._prompt is None else self.split().answer

    @property
    def thought(self) -> str | None:
        """What came before the answer; None where that is not told apart."""
        return None if self._prompt is None else self.split().thought

    @property
    def is_only_thought(self) -> bool:
        """Whether no answer has followed the thought so far."""
        return bool(self.thought) and not self.text
