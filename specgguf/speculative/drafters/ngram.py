"""Drafts from text already seen: the prompt, the output, earlier turns, other texts."""

from array import array
from bisect import bisect_right
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from specgguf.speculative.context import common_prefix

_NOTHING = -1  # no token: ids are never negative
_ROOT, _NONE = 0, -1  # states
_DEPTH = 16  # states counted per token; without an end, "aaaa..." would cost quadratic time


class SuffixIndex:
    """Where every string of the texts occurs, what follows it, and how often.

    A suffix automaton, built token by token in amortized constant time and linear space (Blumer et al., The
    smallest automaton recognizing the subwords of a text, 1985). The longest earlier occurrence of the current
    end is the link of its last state, so it costs nothing to find. For drafting: SAM-Decoding (Hu et al., arXiv
    2411.10666); frequencies as in SuffixDecoding (Oliaro et al., arXiv 2411.04975), here one best continuation
    per state, so that a drafted token costs constant time too.

    A state is all strings that end at the same places. It is a number, and what is known of it stands in arrays:
    a hundred thousand objects would keep the garbage collector busy for longer than the index itself takes.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._clear()

    def _clear(self) -> None:
        self.tokens.clear()
        self._num_texts = 0
        self.length = array("i")  # of the longest string of the state
        self.link = array("i")  # the state of the longest of its ends that occurs at other places too
        self.next: list[dict[int, int]] = []  # token -> state
        self.followed = array("i")  # how often anything came next
        self.best = array("i")  # what came next most often; of equally frequent tokens the latest
        self.best_count = array("i")
        self._last = self._add(0, _NONE, {}, 0, _NOTHING, 0)

    def _add(self, length: int, link: int, following: dict[int, int], followed: int, best: int, count: int) -> int:
        self.length.append(length)
        self.link.append(link)
        self.next.append(following)
        self.followed.append(followed)
        self.best.append(best)
        self.best_count.append(count)
        return len(self.next) - 1

    def extend(self, tokens: Sequence[int]) -> None:
        """Append to the last text. An interruption leaves an empty index, never half a state."""
        try:
            for token in tokens:
                self._append(token)
            self.tokens += tokens
        except BaseException:
            self._clear()
            raise

    def add_text(self, tokens: Sequence[int]) -> None:
        """Append a text of its own: no match runs over its border."""
        # A negative id that occurs only once: no string with it occurs twice.
        self._num_texts += 1
        self.extend([*tokens, -self._num_texts])

    def sync(self, tokens: Sequence[int]) -> bool:
        """Hold exactly `tokens`; whether nothing was taken back.

        Appending is cheap. Where tokens are taken back the index is built again: a conversation does that at
        most once a turn, and a record of how to undo every step would cost more memory than the index itself.
        """
        grown = common_prefix(self.tokens, tokens) == len(self.tokens)
        if not grown:
            self._clear()
        self.extend(tokens[len(self.tokens) :])
        return grown

    def repeat(self) -> "Match":
        """The longest earlier occurrence of the current end. It may overlap the end but is never the end itself."""
        state = max(_ROOT, self.link[self._last])
        return Match(self, state, self.length[state])

    def _append(self, token: int) -> None:
        end = state = self._last
        self._last = new = self._add(self.length[end] + 1, _ROOT, {}, 0, _NOTHING, 0)
        while state != _NONE and token not in self.next[state]:
            self.next[state][token] = new
            state = self.link[state]
        if state != _NONE:
            found = self.next[state][token]
            if self.length[found] > self.length[state] + 1:
                # Only the shorter strings of `found` occur here again: they get a state of their own.
                found = self._split(state, token, found)
            self.link[new] = found
        self._count(end, token)

    def _split(self, state: int, token: int, found: int) -> int:
        short = self._add(
            self.length[state] + 1,
            self.link[found],
            self.next[found].copy(),
            self.followed[found],
            self.best[found],
            self.best_count[found],
        )
        self.link[found] = short
        while state != _NONE and self.next[state].get(token) == found:
            self.next[state][token] = short
            state = self.link[state]
        return short

    def _count(self, state: int, token: int) -> None:
        """`token` followed `state`, where the text ended, and every shorter string that ended there.

        Those are few states in ordinary text. In text that repeats itself over and over there is one for each
        repetition: the longest are counted, the shorter keep their counts.
        """
        link, following, followed, best_count = self.link, self.next, self.followed, self.best_count
        for _ in range(_DEPTH):
            if state == _NONE:
                return
            followed[state] += 1
            # Longer strings come first, so their `followed` counts every occurrence but the one that ends here;
            # where this state was not counted for a while it may be ahead of it.
            count = min(followed[following[state][token]] + 1, followed[state])
            if count >= best_count[state] and token >= 0:
                self.best[state] = token
                best_count[state] = count
            state = link[state]


@dataclass(slots=True)
class Match:
    """The longest end of some tokens that occurs in an index with a token behind it."""

    index: SuffixIndex
    state: int = _ROOT
    length: int = 0

    @property
    def token(self) -> int:
        """What follows: the most frequent token, then the most recent. Negative where nothing matches."""
        return self.index.best[self.state] if self.length else _NOTHING

    @property
    def confidence(self) -> float:
        """The share of that token in all that followed, less than 1 by the chance of something new."""
        return self.index.best_count[self.state] / (self.index.followed[self.state] + 1)

    def advance(self, token: int) -> None:
        """The match of the tokens with one more: amortized constant time."""
        index = self.index
        while self.state != _ROOT and token not in index.next[self.state]:
            self._shorten()
        if token in index.next[self.state]:
            self.state = index.next[self.state][token]
            self.length += 1
        # Nothing follows the end of a text; a shorter end of it may occur elsewhere.
        while self.state != _ROOT and index.best[self.state] == _NOTHING:
            self._shorten()

    def _shorten(self) -> None:
        self.state = self.index.link[self.state]
        self.length = self.index.length[self.state]


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


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that may come next, each with the probability that it is accepted if those before it were."""

    tokens: list[int]
    probabilities: list[float]


class SuffixDrafter:
    """Proposes what followed the longest earlier occurrence of the current end, token by token.

    Each proposed token lengthens the match by one, and the longer match chooses the next. Once a copy runs it
    therefore goes on to the end of what it copies.
    """

    source = "ngram"

    def __init__(self, eog: Container[int] = ()) -> None:
        """`eog`: a proposal ends with the first of these tokens."""
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

    def propose(self, tokens: Sequence[int], limit: int, least: float = 0.0) -> Proposal:
        """At most `limit` tokens that may follow `tokens`, fewer where nothing matches or the text would end.

        Behind a first token less likely than `least` nothing more is looked for.
        """
        self._read(tokens)
        own, elsewhere = self._own.repeat(), replace(self._elsewhere)
        proposal = Proposal([], [])
        self._proposed, self._at = [], len(tokens)
        while len(proposal.tokens) < limit:
            match = own if own.length >= elsewhere.length else elsewhere
            token = match.token
            if token == _NOTHING:
                break
            cls = self._calibration.classify(match, match is elsewhere)
            self._proposed.append((token, cls))
            proposal.tokens.append(token)
            proposal.probabilities.append(self._calibration.probability(cls))
            if token in self._eog or proposal.probabilities[0] < least:
                break
            own.advance(token)
            elsewhere.advance(token)
        return proposal

    def observe(self, accepted: int, sent: int) -> None:
        """Of the last proposal the first `sent` tokens were verified, and the first `accepted` of them were right."""
        if not 0 <= accepted <= sent <= len(self._proposed):
            raise ValueError(f"{accepted} accepted of {sent} sent of {len(self._proposed)} proposed")
        for _, cls in self._proposed[:accepted]:
            self._calibration.observe(cls, True)
        if accepted < sent:
            self._calibration.observe(self._proposed[accepted][1], False)
            self._proposed = []  # what a wrong token is followed by says nothing
        else:
            self._proposed = self._proposed[accepted:]
            self._at += accepted

    def _read(self, tokens: Sequence[int]) -> None:
        """Take up the conversation as it is now, and learn from the proposal as far as nobody reported on it.

        What came instead judges tokens that were not sent. Without that, proposals that stopped paying could
        never show that they would pay again.
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
