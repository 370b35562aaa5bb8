"""Many prompts, one at a time against many at once: how many tokens a second come of all of them.

Each arm answers all prompts from a cold start, and goes on to the next prompt as soon as there is room. The order of
the arms turns with every repetition.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from specgguf.engine.engine import Engine
from specgguf.engine.generation import Generation
from specgguf.engine.pool import Pool
from specgguf.engine.settings import Mode
from specgguf.engine.workbench import Workbench
from specgguf.measure.bench import machine_of
from specgguf.measure.comparison import WARM_UP, in_turns
from specgguf.measure.prompts import ALL, Prompt
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.stats import Stats

METHOD = """Each arm answers all prompts from a cold start, and begins the next one as soon as there is room; the order
of the arms turns with every repetition. Tokens a second are those of all answers by the time from the first prompt to
the last token, the reading of prompts included; speed is that relative to one prompt at a time without drafts, the
median over repetitions. First, p50 and p95: seconds from the beginning of an answer to its first and its last token.
Outside: the share of time spent outside llama.cpp."""


@dataclass(frozen=True, slots=True)
class Arm:
    """So many prompts at once at most, None: as many as pay."""

    num_parallel: int | None
    mode: Mode

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.num_parallel or 'auto'}, {'plain' if self.mode is Mode.OFF else 'drafting'}"


BASE = Arm(1, Mode.OFF)


@dataclass(frozen=True, slots=True)
class Pile:
    """All prompts, answered by an arm. Times in seconds."""

    arm: str
    seconds: float
    outside_s: float
    most_at_once: int
    output_tokens: list[int]
    """By answer, as the others."""
    first_token_s: list[float]
    last_token_s: list[float]
    drafted: dict[str, int]
    """Draft tokens by who made them."""
    accepted: dict[str, int]
    rounds: int
    undrafted: int
    """Rounds without a draft."""


def arms_of(num_parallel: Sequence[int | None]) -> list[Arm]:
    """One at a time, and so many at once; each with drafts and without."""
    return [Arm(count, mode) for count in dict.fromkeys([1, *num_parallel]) for mode in (Mode.OFF, Mode.AUTO)]


def measure(
    engine: Engine,
    prompts: Sequence[Prompt],
    arms: Sequence[Arm],
    sampler: Sampler,
    max_tokens: int,
    repeat: int,
    on_progress: Callable[[int, int], object],
) -> Iterator[Pile]:
    """Answer all prompts with every arm, `repeat` times; `on_progress` is told how many answers are done."""
    asked = [engine.tokenize_chat([{"role": "user", "content": prompt.prompt}]) for prompt in prompts]
    list(engine.generate(asked[0], sampler, WARM_UP))
    done, total = 0, repeat * len(arms) * len(asked)
    for _, (arm, *_) in ((turn, turned) for turn in range(repeat) for _, turned in in_turns(len(arms), arms, 1)):
        Workbench(engine, 1).start_cold()
        for pile, answered in _answer(engine, arm, asked, sampler, max_tokens):
            on_progress(done + answered, total)
            if pile:
                yield pile
        done += len(asked)


def _answer(
    engine: Engine, arm: Arm, asked: Sequence[Sequence[int]], sampler: Sampler, max_tokens: int
) -> Iterator[tuple[Pile | None, int]]:
    """How many answers are done, and in the end what was measured. Raises ContextError where one cannot go on."""
    pool, waiting, ended, active, most = Pool(engine, arm.num_parallel, arm.mode), list(asked), list[Generation](), 0, 0
    begin, begin_llama_s = time.perf_counter(), None
    while waiting or active:
        while waiting and pool.has_room(len(waiting[0]), max_tokens):
            pool.add(waiting.pop(0), sampler, max_tokens)
            active += 1
            begin_llama_s = engine.contexts.seconds if begin_llama_s is None else begin_llama_s  # now they are open
        most = max(most, active)
        for generation, error in pool.step():
            if error:
                raise error
            ended.append(generation)
            active -= 1
            yield None, len(ended)
    seconds, llama_s = time.perf_counter() - begin, engine.contexts.seconds - (begin_llama_s or 0.0)
    stats = Stats()
    for generation in ended:
        stats.add(generation.stats)
    firsts = [generation.timings.first_token_s for generation in ended]
    lasts = [generation.timings.first_token_s + generation.timings.decode_s for generation in ended]
    counts = [len(generation.tokens) for generation in ended]
    drafts = dict(stats.drafted), dict(stats.accepted)
    pile = Pile(
        arm.name, seconds, seconds - llama_s, most, counts, firsts, lasts, *drafts, stats.rounds, stats.undrafted
    )
    yield pile, len(ended)


def report(engine: Engine, piles: Sequence[Pile]) -> dict[str, Any]:
    """Everything that was measured, with what and on which machine."""
    base = [_speed(pile) for pile in piles if pile.arm == BASE.name]
    rows = []
    for arm in dict.fromkeys(pile.arm for pile in piles):
        mine = [pile for pile in piles if pile.arm == arm]
        ratios = [_speed(pile) / plain for pile, plain in zip(mine, base, strict=False)]
        lasts = [seconds for pile in mine for seconds in pile.last_token_s]
        drafted = sum(sum(pile.drafted.values()) for pile in mine)
        tokens, rounds = sum(sum(pile.output_tokens) for pile in mine), sum(pile.rounds for pile in mine)
        row = {
            "category": ALL,
            "arm": arm,
            "at_once": max(pile.most_at_once for pile in mine),
            "tokens_per_s": median(map(_speed, mine)),
            "mean_acceptance_length": tokens / max(1, rounds),
            "acceptance_rate": sum(sum(pile.accepted.values()) for pile in mine) / max(1, drafted),
            "undrafted": sum(pile.undrafted for pile in mine) / max(1, rounds),
            "first_token_s": median(seconds for pile in mine for seconds in pile.first_token_s),
            "last_token_s_p50": float(np.quantile(lasts, 0.5)),
            "last_token_s_p95": float(np.quantile(lasts, 0.95)),
            "outside": sum(pile.outside_s for pile in mine) / sum(pile.seconds for pile in mine),
        }
        if ratios:
            row |= {"speed": median(ratios), "speed_low": min(ratios), "speed_high": max(ratios)}
        rows.append(row)
    method = " ".join(METHOD.split())
    return {**machine_of(engine), "method": method, "rows": rows, "runs": [asdict(pile) for pile in piles]}


def _speed(pile: Pile) -> float:
    return sum(pile.output_tokens) / pile.seconds
