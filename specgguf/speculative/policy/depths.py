"""What batches cost by how deep the context is: attention over many cells changes the whole table."""

from collections.abc import Collection, Mapping
from typing import Any

from specgguf.speculative.policy.costs import WidthCosts

_SHALLOW = 2047
"""Up to so many tokens depth hardly matters."""


class CostsByDepth:
    """A table of costs for each depth: up to 2,047 tokens, 4,095, 8,191, and so on by powers of two."""

    def __init__(
        self, cap: int, tables: Mapping[int, Mapping[str, Any]] | None = None, allowed: Collection[int] | None = None
    ) -> None:
        """`cap`, `allowed`: as in `WidthCosts`; `tables`: what `tables` gave in an earlier run."""
        self._cap = cap
        self._allowed = allowed
        self._costs = {level: WidthCosts(cap, **table, allowed=allowed) for level, table in (tables or {}).items()}

    def at(self, depth: int) -> WidthCosts:
        """The costs after `depth` tokens; to begin with, those of the nearest depth that is known are a guess."""
        level = level_of(depth)
        if level not in self._costs:
            nearest = min(self._costs, key=lambda known: abs(known - level), default=None)
            table = self._costs[nearest].table() if nearest is not None else {}
            self._costs[level] = WidthCosts(self._cap, **{**table, "rounds": 0}, allowed=self._allowed)
        return self._costs[level]

    def tables(self) -> dict[int, dict[str, Any]]:
        """What was learned, by `level_of` the depth."""
        return {level: costs.table() for level, costs in self._costs.items()}


def by_level(tables: Mapping[int, Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Tables by depth, as those of `CostsByDepth`."""
    return {level_of(depth): table for depth, table in tables.items()}


def level_of(depth: int) -> int:
    """Which table is that of a depth: its number of binary digits, and one for all that are shallow."""
    return max(depth, _SHALLOW).bit_length()


def depths_of(level: int) -> str:
    """Which depths share a table, in words: `0-2047 tokens`."""
    most = (1 << level) - 1
    return f"{0 if most == _SHALLOW else (most + 1) // 2}-{most} tokens"
