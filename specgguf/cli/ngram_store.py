"""The answers that --ngram-store keeps, to draft from."""

from pathlib import Path
from typing import TYPE_CHECKING

from specgguf.errors import about

if TYPE_CHECKING:
    from specgguf.engine.engine import Engine
    from specgguf.engine.generation import Generation


class AnswerStore:
    """Answers of earlier runs, which new ones join. Without a file there are none, and none are kept."""

    def __init__(self, path: Path | None) -> None:
        """Raises UsageError if there is something else at `path`, or if it cannot be written to."""
        from specgguf.engine.ngram_store import NgramStore

        with about("ngram-store"):
            self._store = NgramStore(path) if path else None

    def draft_from_all(self, engine: "Engine") -> None:
        """Let the engine draft from what is stored."""
        if self._store:
            engine.draft_from(self._store.texts(engine.target.header.tokenizer.fingerprint))

    def add(self, engine: "Engine", generation: "Generation") -> None:
        """Store an answer, and let the engine draft from it too."""
        if self._store:
            with about("ngram-store"):
                self._store.add(engine.target.header.tokenizer.fingerprint, generation.tokens)
            engine.draft_from([generation.tokens])
