"""How many tokens to draft, by whom, and in batches of which width they are verified."""

from collections.abc import Callable, Sequence
from typing import Protocol

from specgguf.speculative.drafters.model import Draft, ModelDrafter
from specgguf.speculative.drafters.ngram import SuffixDrafter
from specgguf.speculative.policy.depths import CostsByDepth
from specgguf.speculative.policy.length import Adaptive
from specgguf.speculative.verify import Verdict


class Controller(Protocol):
    """Decides round by round; nothing it does can change the text."""

    def draft(self, tokens: Sequence[int], limit: int) -> Draft:
        """What is worth verifying of what may follow `tokens`, at most `limit` tokens."""

    def width(self, rows: int) -> int:
        """How wide a batch of so many rows is made."""

    def observe(self, draft: Draft, verdict: Verdict, target_s: float) -> None:
        """Learn from a round: what came of the draft, and how many seconds its verification took."""


class Plain:
    """Never drafts: the loop is then plain decoding."""

    def __init__(self, widths: Sequence[int] = ()) -> None:
        """`widths`: the only ones to decode, all if empty."""
        self._widths = widths

    def draft(self, tokens: Sequence[int], limit: int) -> Draft:
        """No tokens."""
        return Draft()

    def width(self, rows: int) -> int:
        """The next width there is."""
        return min((width for width in self._widths if width >= rows), default=rows)

    def observe(self, draft: Draft, verdict: Verdict, target_s: float) -> None:
        """Learns nothing."""


class Fixed(Plain):
    """The same number of tokens in every round."""

    def __init__(self, drafter: ModelDrafter, num_draft: int, widths: Sequence[int] = ()) -> None:
        super().__init__(widths)
        self._drafter = drafter
        self._num_draft = num_draft

    def draft(self, tokens: Sequence[int], limit: int) -> Draft:
        """As many as allowed."""
        return self._drafter.draft(tokens, min(limit, self._num_draft))


class Auto:
    """As many tokens as pay, from a draft model or from text already seen, whichever promises more."""

    def __init__(
        self,
        policy: Adaptive,
        costs: CostsByDepth,
        model: ModelDrafter | None,
        suffix: SuffixDrafter | None,
        on_change: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`on_change` is told in a line when drafting with the model is given up, and when it is taken up again."""
        self._on_change = on_change
        self._policy = policy
        self._costs = costs
        self._model = model
        self._suffix = suffix
        self._started = False

    def draft(self, tokens: Sequence[int], limit: int) -> Draft:
        """The proposal with the greatest value, cut to its most valuable beginning; none if nothing pays."""
        policy = self._policy
        policy.costs = self._costs.at(len(tokens))
        if not self._started:
            policy.start(self._model.behind(tokens) if self._model else 0)
            self._started = True
        limit = min(limit, policy.costs.cap)
        seen, gain = Draft(), 0.0
        if self._suffix and limit > 0:
            proposal = self._suffix.propose(tokens, limit, policy.least)
            count, gain = policy.value(proposal.probabilities)
            seen = Draft(self._suffix.source, proposal.tokens[:count])
        if self._model and gain <= policy.prospect():
            draft = self._model.draft(tokens, limit, policy.want_more)
            if draft.probabilities:
                count = policy.take(draft.probabilities)
                draft.tokens, draft.unsent = draft.tokens[:count], draft.tokens[count:]
                return draft
        return seen

    def width(self, rows: int) -> int:
        """The cheapest width with room for the rows."""
        return self._policy.costs.width(rows)

    def observe(self, draft: Draft, verdict: Verdict, target_s: float) -> None:
        """Hand on what was learned."""
        sent, accepted = len(draft.tokens), verdict.accepted
        known = accepted == sent and draft.unsent
        next_matched = verdict.output[-1] == draft.unsent[0] if known else None
        parked = self._policy.parked
        self._policy.observe(sent, accepted, target_s, draft.seconds, draft.probabilities, next_matched)
        if self._suffix and draft.source == self._suffix.source:
            self._suffix.observe(accepted, sent)
        if self._model and self._policy.parked is not parked:
            self._on_change(self._policy.explain())
