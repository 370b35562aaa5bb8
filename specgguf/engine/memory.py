"""What is remembered from text to text, and of costs from run to run."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specgguf.drafters.ngram import NgramDrafter
from specgguf.exact.choice import Arithmetic, WidthSurvey
from specgguf.exact.classes import Measurement
from specgguf.exact.profiles import Fingerprint, Profiles
from specgguf.speculative.policy.depths import level_of
from specgguf.speculative.policy.policy import Policy


class CostStore:
    """What batches cost, on disk: for a target with one drafting model or none, on this machine with these settings."""

    def __init__(self, survey: WidthSurvey, arithmetic: Arithmetic, profiles: Profiles) -> None:
        """`survey`: knows the target, and what else costs depend on."""
        self._survey = survey
        self._arithmetic = arithmetic
        self._profiles = profiles

    def load(self, draft: Path | None, measured: Measurement | None) -> dict[int, dict[str, Any]]:
        """As `Policy` takes it; where nothing was saved, how the widths compared when they were measured."""
        key = self._key(draft)
        found = self._profiles.load(key) if key else None
        if found:
            return {
                int(level): {**table, "times": {int(width): seconds for width, seconds in table["times"].items()}}
                for level, table in found.items()
            }
        return {level_of(0): {"times": measured.seconds}} if measured else {}

    def save(self, draft: Path | None, tables: Mapping[int, Mapping[str, Any]]) -> None:
        """`tables`: as `Policy.tables` gives them.

        Nothing is saved where a file would have to be read to know its hash.
        """
        key = self._key(draft)
        if key:
            self._profiles.save(key, {level: dict(table) for level, table in tables.items()})

    def hash_files(self, draft: Path | None) -> None:
        """Read the files if need be, so that their costs can be saved."""
        for file in filter(None, (self._survey.header.path, draft)):
            self._profiles.digest_of(file)

    def _key(self, draft: Path | None) -> Fingerprint | None:
        digests = [self._profiles.known_digest(file) for file in (self._survey.header.path, draft) if file]
        if None in digests:
            return None
        what = "costs by depth and drafter"
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
