"""What is remembered from text to text, and of costs from run to run."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specgguf.drafters.ngram import NgramDrafter
from specgguf.engine.sittings import Tables, add_sitting, from_json, known_times, usual
from specgguf.exact.choice import Arithmetic, WidthSurvey
from specgguf.exact.classes import Measurement
from specgguf.exact.profiles import Fingerprint, Profiles
from specgguf.exact.timing import is_sensible
from specgguf.speculative.policy.depths import level_of
from specgguf.speculative.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class TunedCosts:
    """What `tune` measured."""

    tables: Tables
    noise: float = 0.0
    """How much longer than the least a round took, usually: 0.1 is a tenth."""
    steady: bool = True
    """Whether rounds agreed."""
    at: float = field(default_factory=time.time)
    """When, in seconds since 1970."""


class CostStore:
    """What batches cost, on disk: for a target with one drafting model or none, on this machine with these settings."""

    def __init__(self, survey: WidthSurvey, arithmetic: Arithmetic, profiles: Profiles) -> None:
        """`survey`: knows the target, and what else costs depend on."""
        self._survey = survey
        self._arithmetic = arithmetic
        self._profiles = profiles

    def load(self, draft: Path | None, measured: Measurement | None) -> dict[int, dict[str, Any]]:
        """By depth, as `Policy` takes it; where nothing was saved, how the widths compared when they were measured."""
        found = self.recall(draft)
        if found or measured is None or measured.timing.doubted or not is_sensible(measured.seconds):
            return found
        return {level_of(0): {"times": measured.seconds}}

    def recall(self, draft: Path | None) -> dict[int, dict[str, Any]]:
        """What was saved, by depth; nothing if that is not known."""
        tuned, sittings = self._saved(draft)
        return usual([*([tuned.tables] if tuned else []), *(sitting["tables"] for sitting in sittings)])

    def tuned(self, draft: Path | None) -> TunedCosts | None:
        """What `tune` has measured."""
        return self._saved(draft)[0]

    def save(self, draft: Path | None, tables: Tables) -> None:
        """Remember what was learned in passing, beside what earlier runs have learned.

        `tables`: by depth, as `Policy.tables` gives them. Nothing is saved where a file would have to be read to know
        its hash.
        """
        key = self._key(draft)
        if key:
            tuned, sittings = self._saved(draft)
            self._save(key, tuned, add_sitting(sittings, tables, time.time()))
            self._survey.compare(self._arithmetic, known_times(tables.get(level_of(0), {"times": {}})))

    def save_tuned(self, draft: Path | None, found: TunedCosts) -> None:
        """Remember what was measured on purpose; instead of what was learned, unless the machine was busy."""
        key = self._key(draft)
        if key:
            self._save(key, found, [] if found.steady else self._saved(draft)[1])

    def _saved(self, draft: Path | None) -> tuple[TunedCosts | None, list[Mapping[str, Any]]]:
        """What was tuned, and the sittings."""
        key = self._key(draft)
        found = self._profiles.load(key) if key else None
        if not found:
            return None, []
        tuned = found["tuned"]
        sittings: list[Mapping[str, Any]] = [
            {**sitting, "tables": from_json(sitting["tables"])} for sitting in found["sittings"]
        ]
        return TunedCosts(**{**tuned, "tables": from_json(tuned["tables"])}) if tuned else None, sittings

    def _save(self, key: Fingerprint, tuned: TunedCosts | None, sittings: Sequence[Mapping[str, Any]]) -> None:
        self._profiles.save(key, {"tuned": asdict(tuned) if tuned else None, "sittings": sittings})

    def hash_files(self, draft: Path | None) -> None:
        """Read the files if need be, so that their costs can be saved."""
        for file in filter(None, (self._survey.header.path, draft)):
            self._profiles.digest_of(file)

    def _key(self, draft: Path | None) -> Fingerprint | None:
        digests = [self._profiles.known_digest(file) for file in (self._survey.header.path, draft) if file]
        if None in digests:
            return None
        what = "costs by sitting, depth and drafter"
        return {**self._survey.fingerprint(self._arithmetic), "draft": str(digests[1:]), "what": what}


class Memory:
    """What was learned about drafts and costs, and the texts that n-gram drafts are made from."""

    def __init__(
        self,
        cap: int,
        widths: Collection[int],
        eog: Collection[int],
        num_tokens: int,
        tables: Mapping[int, Mapping[str, Any]],
    ) -> None:
        """`cap`: the longest draft; `widths`: the only ones to decode, all if empty; `eog` and `num_tokens`: of the
        target's vocabulary; `tables`: what is known of costs, as `Policy.tables` gives it.
        """
        self._cap = cap
        self._widths = widths
        self._eog = eog
        self._num_tokens = num_tokens
        self.learn_anew(tables)

    def learn_anew(self, tables: Mapping[int, Mapping[str, Any]]) -> None:
        """Forget texts and what was learned about drafts; `tables` are what is known of costs."""
        self.policy = Policy(self._cap, tables, self._widths or None)
        self.ngram = NgramDrafter(self._eog)

    def add_texts(self, texts: Iterable[Sequence[int]]) -> None:
        """Draft from these texts too, as far as n-gram drafts are made."""
        for text in texts:
            self.ngram.add_text([token for token in text if token < self._num_tokens])
