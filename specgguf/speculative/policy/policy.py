"""All that is learned about draft lengths, by drafter and depth; it is kept from text to text."""

from collections.abc import Collection, Mapping
from typing import Any

from specgguf.speculative.drafter import Drafter
from specgguf.speculative.policy.depths import CostsByDepth
from specgguf.speculative.policy.length import LengthRule, rule_for
from specgguf.speculative.policy.pace import Pace


class Policy:
    """The pace of the text at hand, and a length rule for each drafter."""

    def __init__(
        self, cap: int, tables: Mapping[int, Mapping[str, Any]] | None = None, allowed: Collection[int] | None = None
    ) -> None:
        """As in `CostsByDepth`."""
        self._costs = CostsByDepth(cap, tables, allowed)
        self.pace = Pace(self._costs.at(0))
        self._rules: dict[str, LengthRule] = {}

    def rule(self, drafter: Drafter) -> LengthRule:
        """The drafter's own, the same for every text."""
        if drafter.name not in self._rules:
            self._rules[drafter.name] = rule_for(drafter.name, drafter.is_free, self.pace)
        return self._rules[drafter.name]

    def begin(self, depth: int) -> None:
        """A new text, whose prompt has `depth` tokens."""
        self.costs_at(depth)
        self.pace.begin()

    def costs_at(self, depth: int) -> None:
        """From here on, what batches cost after `depth` tokens."""
        self.pace.costs = self._costs.at(depth)

    def tables(self) -> dict[int, dict[str, Any]]:
        """What was learned about costs, as the constructor takes it."""
        return self._costs.tables()

    @property
    def cap(self) -> int:
        """Draft tokens of one text in a round at most."""
        return self.pace.costs.cap

    @property
    def plain_tokens_per_s(self) -> float | None:
        """What plain decoding would yield at present, estimated; None where it is not known."""
        return 1 / self.pace.costs.plain if self.pace.costs.plain_known else None

    def explain(self) -> list[str]:
        """What is believed of each drafter, a line each."""
        return [f"{name}: {rule.explain()}" for name, rule in self._rules.items()]
