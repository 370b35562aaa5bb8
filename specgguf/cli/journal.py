"""The rows that answers get in the journal, and what its guard makes of them."""

import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from specgguf.cli.options.journal import Journaling
from specgguf.cli.options.texts import check_texts
from specgguf.cli.terminal import output
from specgguf.engine.settings import Mode
from specgguf.errors import JournalError

if TYPE_CHECKING:
    from specgguf.engine.engine import Engine
    from specgguf.engine.generation import Generation
    from specgguf.journal.guard import Guard
    from specgguf.journal.row import Pair, Row
    from specgguf.journal.store import Journal
    from specgguf.speculative.policy.pace import Pace
    from specgguf.speculative.stats import Stats

T = TypeVar("T")


class Journalist:
    """Writes the rows of one route. A journal that cannot be used costs no answer: it is noted once."""

    def __init__(self, options: Journaling, command: str, guard: "Guard | None") -> None:
        """`command` is the route where none is given; `guard` may switch it off. Raises UsageError for an odd name."""
        if options.route is not None:
            check_texts("route", [options.route])
        self.route = command if options.route is None else options.route
        self.guard = guard
        self._keeps_text = options.journal_text
        self._journal = _open() if options.journal else None
        self._fingerprints: dict[Path, str] = {}
        self._off: set[Pair] = set()
        """For which the route was off when it was last looked at."""
        self._seen: tuple[Pace | None, float, float] = (None, 0.0, 0.0)
        """What earlier rows have taken into account of a pace: seconds of rounds, and of plain decoding."""

    def may_draft(self, target: Path, draft: Path | None) -> bool:
        """Whether no guard has switched the route off for these files."""
        if not self.guard:
            return True
        pair = self._pair(target, draft)
        return not self._attempt(lambda journal: journal.is_off(self.route, pair), False)

    def begin(self, engine: "Engine") -> None:
        """Answers of this engine follow."""
        self._steer(engine, engine.mode)

    def add(self, engine: "Engine", generation: "Generation", num_texts: int = 1, mode: Mode | None = None) -> None:
        """Give an answer its row, if there is any of it.

        `num_texts` were answered at once; `mode` is how drafts were made if not as usual.
        """
        if not self._journal or not generation.tokens:
            return
        mode = mode or engine.mode
        row = self._row(engine, generation, num_texts, mode)
        if off := self._attempt(lambda journal: journal.add(row, self.guard), None):
            output.note(
                f"route {off.route}: its guard switches drafting off, at {off.speed:.2f} times the speed of plain "
                f"decoding in {off.answers} answers; back on: specgguf stats --reset-guard {shlex.quote(off.route)}"
            )
        self._steer(engine, mode)

    def close(self) -> None:
        """No row follows."""
        if self._journal:
            self._attempt(lambda journal: journal.close(), None)

    def _steer(self, engine: "Engine", mode: Mode) -> None:
        """Switch drafts off or on as the guard has it, whichever process it was that told.

        Rounds that all have drafts cannot tell how fast plain decoding is: of `fixed`, some answers are plain.
        """
        if not self.guard:
            return
        pair = self._pair_of(engine)
        off = self._attempt(lambda journal: journal.is_off(self.route, pair), pair in self._off)
        (self._off.add if off else self._off.discard)(pair)
        compares = mode is Mode.FIXED and self._journal is not None and self._plain_speed(pair) is None
        engine.drafting = not off and not compares

    def _plain_speed(self, pair: "Pair") -> float | None:
        from specgguf.journal.guard import plain_speed

        most = self.guard.window if self.guard else 0
        return plain_speed(self._attempt(lambda journal: journal.judged(self.route, pair, most), []))

    def _row(self, engine: "Engine", generation: "Generation", num_texts: int, mode: Mode) -> "Row":
        from specgguf.journal.row import Row

        stats, timings, settings = generation.stats, generation.timings, engine.settings
        asked = {
            "draft_max": settings.draft_max,
            "exact": settings.exact,
            "temperature": generation.temperature,
            "threads": engine.num_threads,
            "gpu_layers": engine.num_gpu_layers,
            "cache_types": list(engine.cache_types),
        }
        drafts = mode is not Mode.OFF and bool(engine.drafting or stats.drafted)
        judged_s, plain_s = self._compared(engine, generation, num_texts) if drafts else (0.0, 0.0)
        return Row(
            time=time.time(),
            route=self.route,
            target=engine.target.header.name,
            draft=engine.draft.header.name if engine.draft else "",
            pair=self._pair_of(engine),
            mode=(mode if drafts else Mode.OFF).value,
            texts=num_texts,
            settings=asked,
            prompt_tokens=generation.prompt_tokens,
            cached_tokens=generation.cached_tokens,
            output_tokens=len(generation.tokens),
            rounds=stats.rounds,
            undrafted=stats.undrafted,
            drafted=stats.drafted.total(),
            accepted=stats.accepted.total(),
            counters={"first": _counters(generation.early), "rest": _counters(stats, generation.early)},
            prefill_s=timings.prefill_s,
            first_token_s=timings.first_token_s,
            last_token_s=timings.first_token_s + timings.decode_s,
            decode_s=timings.decode_s,
            tokens_per_s=timings.tokens_per_s,
            judged_s=judged_s,
            plain_s=plain_s,
            finish_reason=generation.finish_reason,
            prompt=generation.prompt if self._keeps_text else None,
            answer=generation.text if self._keeps_text else None,
        )

    def _compared(self, engine: "Engine", generation: "Generation", num_texts: int) -> tuple[float, float]:
        """Seconds of rounds, and of plain decoding of the same: since the last row, or else of this answer."""
        policy, timings = engine.memory.policy, generation.timings
        pace, (seen, judged_s, plain_s) = policy.pace, self._seen
        if pace is not seen:
            judged_s = plain_s = 0.0
        self._seen = pace, pace.judged_s, pace.plain_s
        if pace.judged_s > judged_s:
            return pace.judged_s - judged_s, pace.plain_s - plain_s
        plain = self._plain_speed(self._pair_of(engine)) or policy.plain_tokens_per_s
        if not plain or num_texts > 1:
            return 0.0, 0.0
        return timings.decode_s, timings.decode_s * timings.tokens_per_s / plain

    def _pair_of(self, engine: "Engine") -> "Pair":
        return self._pair(engine.target.header.path, engine.draft.header.path if engine.draft else None)

    def _pair(self, target: Path, draft: Path | None) -> "Pair":
        from specgguf.journal.row import Pair

        return Pair(self._fingerprint(target), self._fingerprint(draft) if draft and draft != target else "")

    def _fingerprint(self, path: Path) -> str:
        """Empty for what is no file: whoever loads it says so."""
        from specgguf.models.fingerprint import fingerprint

        if path not in self._fingerprints:
            self._fingerprints[path] = fingerprint(path) if path.is_file() else ""
        return self._fingerprints[path]

    def _attempt(self, action: "Callable[[Journal], T]", otherwise: T) -> T:
        """Do something with the journal, as long as there is one."""
        if not self._journal:
            return otherwise
        try:
            return action(self._journal)
        except JournalError as error:
            self._journal = None
            output.note(f"no row for this answer: {error.message} ({error.hint}, or give --no-journal)")
            return otherwise


def _open() -> "Journal | None":
    """None for a user who has no home folder."""
    from specgguf.journal.store import Journal
    from specgguf.models.locations import NOWHERE, journal_file

    path = journal_file()
    return None if path.is_relative_to(NOWHERE) else Journal(path)


def _counters(stats: "Stats", apart: "Stats | None" = None) -> "Mapping[str, Mapping[str, list[int]]]":
    """By drafter: the draft tokens at each position, and those accepted there; without the rounds of `apart`."""
    drafted, accepted = (
        found - (getattr(apart, name) if apart else Counter())
        for name, found in (("drafted_at", stats.drafted_at), ("accepted_at", stats.accepted_at))
    )
    lengths = Counter(source for source, _ in drafted)
    return {
        source: {
            "drafted": [drafted[source, at] for at in range(length)],
            "accepted": [accepted[source, at] for at in range(length)],
        }
        for source, length in lengths.items()
    }
