"""An answer as it comes, its thought apart."""

from collections.abc import Iterator

from specgguf.engine.generation import Generation
from specgguf.text.thought import Said, ThoughtStream, split


class Answer:
    """Iterate to get the pieces of an answer, each with the name of the drafter that guessed it ("" for none)."""

    def __init__(self, generation: Generation, inside: bool | None) -> None:
        """`inside`: whether the text begins inside a thought; None if all of it is answer."""
        self.generation = generation
        self._inside = inside
        self._thoughts = ThoughtStream(inside)

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
        return split(self.generation.text, self._inside)

    @property
    def text(self) -> str:
        """The text so far: without the thought and the white space around it, but untouched where all is answer."""
        return self.generation.text if self._inside is None else self.split().answer
