"""Rounds without models: recorded drafts, or drafts at random, with the costs of some machine."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from specgguf.speculative.drafter import Draft as Drafted
from specgguf.speculative.policy.costs import WidthCosts
from specgguf.speculative.policy.loss_budget import LossBudget
from specgguf.speculative.policy.pace import Pace
from specgguf.speculative.policy.stopping import OptimalStopping
from specgguf.speculative.verify import Verdict

CAP = 15
TRACES = json.loads((Path(__file__).parent.parent / "data" / "traces.json").read_text())
Times = Callable[[], float]


@dataclass(frozen=True)
class Machine:
    """What things cost, in seconds. `times` has an entry for every width."""

    times: dict[int, float]
    step: float

    @property
    def plain(self) -> float:
        return self.times[1]

    def scaled(self, factor: float) -> "Machine":
        return Machine({n: t * factor for n, t in self.times.items()}, self.step * factor)

    def costs(self, **more) -> WidthCosts:
        """All of it known beforehand; and no draft ever has to catch up."""
        return WidthCosts(CAP, self.times, {"model": {"step": self.step, "catch_up": 0.0}}, **more)


def machine(name: str) -> Machine:
    """One of the recorded cost tables, its gaps filled by straight lines."""
    (table,) = (cost for regime, cost in TRACES["cost_ms"].items() if regime.split()[0] == name)
    known = {int(n): ms / 1000 for n, ms in table["target"].items()}
    times = {}
    for n in range(1, CAP + 2):
        low, high = max(k for k in known if k <= n), min(k for k in known if k >= n)
        times[n] = known[low] + (known[high] - known[low]) * (n - low) / max(1, high - low)
    return Machine(times, table["draft"] / 1000)


class Policy:
    """The rules for a draft model, and for drafts that are free, in one text."""

    def __init__(self, costs: WidthCosts) -> None:
        self.pace = Pace(costs)
        self.model = OptimalStopping("model", self.pace)
        self.free = LossBudget(self.pace)

    @property
    def costs(self) -> WidthCosts:
        return self.pace.costs

    def begin(self, backlog: int = 0) -> None:
        self.pace.begin()
        self.model.begin(backlog)
        self.free.begin(0)

    def observe(self, target_s: float, sent: int, accepted: int, draft: Drafted, output: int | None = None) -> None:
        """`output`: the last token of the round, where it matters."""
        verdict = Verdict(accepted, [0] * accepted + [-1 if output is None else output])
        lost = self.pace.observe(sent, accepted + 1, target_s, draft.seconds)
        drafted = {"model": self.model, "ngram": self.free}.get(draft.source)
        for rule in (self.model, self.free):
            if rule is drafted:
                rule.observe(draft, verdict, lost)
            else:
                rule.pass_over(accepted + 1)


@dataclass(frozen=True)
class Round:
    drafted: int
    sent: int
    accepted: int
    seconds: float
    parked: bool


class Noise:
    """Times as a busy machine shows them: 10% off, and now and then three times as long."""

    def __init__(self, seed: int, share: float = 0.1, outliers: float = 0.03) -> None:
        self.random = random.Random(seed)
        self.share = share
        self.outliers = outliers

    def __call__(self) -> float:
        return exp(self.random.gauss(0, self.share)) * (3 if self.random.random() < self.outliers else 1)


def one_round(policy: Policy, on: Machine, known: Sequence[float], matched: int, noise: Times = lambda: 1.0) -> Round:
    """`known`: the draft's probabilities; `matched`: how many of its tokens are the target's own.

    The policy sees times with noise; the round is charged the true ones.
    """
    parked, top1 = policy.model.parked, []
    while len(top1) < CAP and policy.model.go_on(top1):
        top1.append(known[len(top1)] if len(top1) < len(known) else 0.5)
    sent, _ = policy.model.choose(top1)
    accepted = min(sent, matched)
    target_s, draft_s = on.times[policy.costs.width(sent + 1)], on.step * len(top1)
    noisy_s = target_s * noise()
    draft = Drafted("model" if top1 else "none", [0] * sent, [0] * (len(top1) - sent), top1, draft_s * noise())
    policy.observe(noisy_s, sent, accepted, draft, 0 if matched > sent else 1)
    return Round(len(top1), sent, accepted, target_s + draft_s, parked)


def rounds(policy: Policy, on: Machine, name: str, noise: Times = lambda: 1.0, repeat: int = 1) -> list[Round]:
    """A recorded text, `repeat` times over."""
    matches, known = (TRACES["prompts"][name][key] * repeat for key in ("matched", "top1"))
    at, total, played = 0, len(matches), []
    while at < total:
        played.append(one_round(policy, on, known[at], min(matches[at], total - at - 1), noise))
        at += played[-1].accepted + 1
    return played


def replay(
    policy: Policy, on: Machine, names: Sequence[str], noise: Times = lambda: 1.0, repeat: int = 1
) -> dict[str, float]:
    """Speed relative to plain decoding, for each recorded text, one after another, each `repeat` times over."""
    return {name: speed(rounds(policy, on, name, noise, repeat), on) for name in names}


def oracle(on: Machine) -> dict[str, float]:
    """The same for whoever knows beforehand what will be accepted: the fixed point of the rate."""
    rate = 1 / on.plain
    for _ in range(8):
        speeds, tokens, seconds = {}, 0, 0.0
        for name, trace in TRACES["prompts"].items():
            at, total, elapsed = 0, len(trace["matched"]), 0.0
            while at < total:
                match = min(trace["matched"][at], total - at - 1)
                cost = [k * on.step + on.times[k + 1] for k in range(CAP + 1)]
                best = max(range(CAP + 1), key=lambda k: min(match, k) + 1 - rate * cost[k])
                elapsed += cost[best]
                at += min(match, best) + 1
            speeds[name] = total * on.plain / elapsed
            tokens, seconds = tokens + total, seconds + elapsed
        rate = tokens / seconds
    return speeds


def mean(speeds: dict[str, float]) -> float:
    """The geometric mean."""
    return exp(sum(log(speed) for speed in speeds.values()) / len(speeds))


@dataclass
class Draft:
    """A draft at random: streaks of confident tokens, and doubtful ones; accepted as often as it says.

    `honest` below 1: accepted that much less often than it says.
    """

    confident: float
    honest: float = 1.0
    seed: int = 0

    def __iter__(self) -> Iterator[tuple[list[float], int]]:
        """For each round the probabilities and the number of tokens that match."""
        dice = random.Random(self.seed)
        while True:
            known = [
                dice.uniform(0.93, 1.0) if dice.random() < self.confident else dice.uniform(0.1, 0.7)
                for _ in range(CAP)
            ]
            matched = 0
            while matched < CAP and dice.random() < known[matched] * self.honest:
                matched += 1
            yield known, matched


def play(policy: Policy, on: Machine, draft: Draft, rounds: int, noise: Times = lambda: 1.0) -> list[Round]:
    """So many rounds."""
    return [one_round(policy, on, *drafted, noise) for _, drafted in zip(range(rounds), draft, strict=False)]


def speed(rounds: Sequence[Round], on: Machine) -> float:
    """Relative to plain decoding."""
    return sum(r.accepted + 1 for r in rounds) * on.plain / sum(r.seconds for r in rounds)
