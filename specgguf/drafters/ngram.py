"""Drafts from text already seen: the prompt, the output, earlier turns, other texts."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import TypeAlias

from specgguf.drafters.suffix import NOTHING, Match, SuffixIndex
from specgguf.speculative.context import Evaluated
from specgguf.speculative.drafter import Draft, GoOn
from specgguf.speculative.sequence import TokenSequence

_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 32)  # the shortest match of each class
# How often its token is right, to begin with, by confidence: below 1/4, 1/2, 3/4, 1. Seen once is 1/2. Rounded from
# files of this repository, read anew and as edits of their earlier versions.
_PRIORS = (
    (0.08, 0.17, 0.32, 0.69),
    (0.10, 0.18, 0.45, 0.79),
    (0.10, 0.20, 0.60, 0.86),
    (0.10, 0.24, 0.70, 0.90),
    (0.10, 0.25, 0.80, 0.90),
    (0.15, 0.30, 0.85, 0.92),
    (0.20, 0.40, 0.90, 0.93),
    (0.20, 0.40, 0.94, 0.95),
    (0.20, 0.50, 0.98, 0.98),
)
_PRIOR_WEIGHT = 4.0  # observations
_KEEP = 0.99  # what each new observation of a class leaves of the old ones

_Class: TypeAlias = tuple[bool, int, int]
"""In the conversation or elsewhere; class of the match length; class of the confidence."""


class Calibration:
    """How often the tokens proposed on matches of a class were right."""

    def __init__(self) -> None:
        self._right: dict[_Class, float] = {}
        self._tried: dict[_Class, float] = {}

    @staticmethod
    def classify(match: Match, elsewhere: bool) -> _Class:
        """The class of a match that is not empty."""
        return elsewhere, bisect_right(_LENGTHS, match.length) - 1, int(4 * match.confidence)

    def probability(self, cls: _Class) -> float:
        """The chance that the next token of this class is right."""
        _, length, confidence = cls
        right = self._right.get(cls, 0.0) + _PRIOR_WEIGHT * _PRIORS[length][confidence]
        return right / (self._tried.get(cls, 0.0) + _PRIOR_WEIGHT)

    def observe(self, cls: _Class, right: bool) -> None:
        """A token of this class was right or wrong."""
        self._right[cls] = self._right.get(cls, 0.0) * _KEEP + right
        self._tried[cls] = self._tried.get(cls, 0.0) * _KEEP + 1.0


class _Text:
    """A sequence as far as it is known, and its last draft."""

    def __init__(self, others: SuffixIndex) -> None:
        self.own = SuffixIndex()
        self.elsewhere = Match(others)
        self.proposed: list[tuple[int, _Class]] = []
        self.at = 0
        """The position of the first of them in the text."""

    def look_elsewhere(self, others: SuffixIndex) -> None:
        """Match it from its beginning."""
        self.elsewhere = Match(others)
        for token in self.own.tokens:
            self.elsewhere.advance(token)


class NgramDrafter:
    """Proposes what followed the longest earlier occurrence of the current end, token by token.

    Each proposed token lengthens the match by one, and the longer match chooses the next. Once a copy runs it
    therefore goes on to the end of what it copies.
    """

    name = "ngram"
    is_free = True
    taps: tuple[int, ...] = ()

    def __init__(self, eog: Container[int] = ()) -> None:
        """`eog`: a draft ends with the first of these tokens."""
        self._eog = eog
        self._others = SuffixIndex()
        self._texts = defaultdict[int, _Text](lambda: _Text(self._others))
        self._calibration = Calibration()

    def add_text(self, tokens: Sequence[int]) -> None:
        """Propose from this text too; at equal length the conversation's own matches come first."""
        self._others.add_text(tokens)
        for text in self._texts.values():
            text.look_elsewhere(self._others)  # its states may have been split

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """All of them; takes up the prompt."""
        self._take_up(sequence)
        return num_kept

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Nothing: tokens are all it needs, and `draft` sees them."""

    def backlog(self, sequence: TokenSequence) -> int:
        """Nothing has to be decoded."""
        return 0

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int], go_on: GoOn) -> list[Draft]:
        """Fewer tokens where nothing matches or a text would end."""
        drafts = [Draft(self.name) for _ in sequences]
        matches = [self._begin_draft(sequence) for sequence in sequences]
        going = set(range(len(sequences)))
        while going:
            going = {place for place in going if len(drafts[place].tokens) < limits[place]}
            going &= set(go_on([draft.probabilities for draft in drafts])) if going else going
            going = {place for place in going if self._add(drafts[place], sequences[place], *matches[place])}
        return drafts

    def accept(self, sequence: TokenSequence, sent: int, accepted: int) -> None:
        """Learn from the draft as far as it was verified; raises ValueError for more than was drafted."""
        text = self._texts[sequence.id]
        if not 0 <= accepted <= sent <= len(text.proposed):
            raise ValueError(f"{accepted} accepted of {sent} sent of {len(text.proposed)} drafted")
        for _, cls in text.proposed[:accepted]:
            self._calibration.observe(cls, True)
        if accepted < sent:
            self._calibration.observe(text.proposed[accepted][1], False)
            text.proposed = []  # what a wrong token is followed by says nothing
        else:
            text.proposed = text.proposed[accepted:]
            text.at += accepted

    def _begin_draft(self, sequence: TokenSequence) -> tuple[Match, Match]:
        text = self._take_up(sequence)
        text.proposed, text.at = [], len(sequence.tokens)
        return text.own.repeat(), replace(text.elsewhere)

    def _add(self, draft: Draft, sequence: TokenSequence, own: Match, elsewhere: Match) -> bool:
        """Draft what follows the longer match; whether another token may follow."""
        match = own if own.length >= elsewhere.length else elsewhere
        token = match.token
        if token == NOTHING:
            return False
        cls = self._calibration.classify(match, match is elsewhere)
        self._texts[sequence.id].proposed.append((token, cls))
        draft.tokens.append(token)
        draft.probabilities.append(self._calibration.probability(cls))
        own.advance(token)
        elsewhere.advance(token)
        return token not in self._eog

    def _take_up(self, sequence: TokenSequence) -> _Text:
        """Take up the conversation as it is now, and learn from the draft as far as it was not verified.

        What came instead judges tokens that were not sent. Without that, drafts that stopped paying could never show
        that they would pay again.
        """
        text, tokens = self._texts[sequence.id], sequence.tokens
        before = len(text.own.tokens)
        if text.own.sync(tokens):
            for (guess, cls), token in zip(text.proposed, tokens[text.at :], strict=False):
                self._calibration.observe(cls, guess == token)
                if guess != token:
                    break
        else:
            before, text.elsewhere = 0, Match(self._others)
        for token in tokens[before:]:
            text.elsewhere.advance(token)
        return text
