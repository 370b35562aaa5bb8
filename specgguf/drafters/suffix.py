"""An index of texts: where their strings occur again, and what follows them."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from specgguf.speculative.context import common_prefix

NOTHING = -1
"""No token: ids are never negative."""
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
        self._last = self._add(0, _NONE, {}, 0, NOTHING, 0)

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
        self._last = new = self._add(self.length[end] + 1, _ROOT, {}, 0, NOTHING, 0)
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
    """The longest end of some tokens that occurs in an index with a token after it."""

    index: SuffixIndex
    state: int = _ROOT
    length: int = 0

    @property
    def token(self) -> int:
        """What follows: the most frequent token, then the most recent. Negative where nothing matches."""
        return self.index.best[self.state] if self.length else NOTHING

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
        while self.state != _ROOT and index.best[self.state] == NOTHING:
            self._shorten()

    def _shorten(self) -> None:
        self.state = self.index.link[self.state]
        self.length = self.index.length[self.state]
