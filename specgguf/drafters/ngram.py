"""Drafts from text already seen: the prompt, the output, earlier turns, other texts."""

from bisect import bisect_right
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
        self._own = SuffixIndex()
        self._others = SuffixIndex()
        self._elsewhere = Match(self._others)
        self._calibration = Calibration()
        self._proposed: list[tuple[int, _Class]] = []
        self._at = 0  # the position of the first of them in the text

    def add_text(self, tokens: Sequence[int]) -> None:
        """Propose from this text too; at equal length the conversation's own matches come first."""
        # States will be split: match the conversation again from its beginning.
        self._elsewhere = Match(self._others)
        self._others.add_text(tokens)
        for token in self._own.tokens:
            self._elsewhere.advance(token)

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """All of them; takes up the prompt."""
        self._take_up(sequence.tokens)
        return num_kept

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Nothing: tokens are all it needs, and `draft` sees them."""

    def backlog(self, sequence: TokenSequence) -> int:
        """Nothing has to be decoded."""
        return 0

    def draft(self, sequence: TokenSequence, limit: int, go_on: GoOn) -> Draft:
        """Fewer tokens where nothing matches or the text would end."""
        self._take_up(sequence.tokens)
        own, elsewhere = self._own.repeat(), replace(self._elsewhere)
        draft = Draft(self.name)
        self._proposed, self._at = [], len(sequence.tokens)
        while len(draft.tokens) < limit and go_on(draft.probabilities):
            match = own if own.length >= elsewhere.length else elsewhere
            token = match.token
            if token == NOTHING:
                break
            cls = self._calibration.classify(match, match is elsewhere)
            self._proposed.append((token, cls))
            draft.tokens.append(token)
            draft.probabilities.append(self._calibration.probability(cls))
            if token in self._eog:
                break
            own.advance(token)
            elsewhere.advance(token)
        return draft

    def accept(self, sequence: TokenSequence, sent: int, accepted: int) -> None:
        """Learn from the draft as far as it was verified; raises ValueError for more than was drafted."""
        if not 0 <= accepted <= sent <= len(self._proposed):
            raise ValueError(f"{accepted} accepted of {sent} sent of {len(self._proposed)} drafted")
        for _, cls in self._proposed[:accepted]:
            self._calibration.observe(cls, True)
        if accepted < sent:
            self._calibration.observe(self._proposed[accepted][1], False)
            self._proposed = []  # what a wrong token is followed by says nothing
        else:
            self._proposed = self._proposed[accepted:]
            self._at += accepted

    def _take_up(self, tokens: Sequence[int]) -> None:
        """Take up the conversation as it is now, and learn from the draft as far as it was not verified.

        What came instead judges tokens that were not sent. Without that, drafts that stopped paying could never show
        that they would pay again.
        """
        before = len(self._own.tokens)
        if self._own.sync(tokens):
            for (guess, cls), token in zip(self._proposed, tokens[self._at :], strict=False):
                self._calibration.observe(cls, guess == token)
                if guess != token:
                    break
        else:
            before, self._elsewhere = 0, Match(self._others)
        for token in tokens[before:]:
            self._elsewhere.advance(token)
