"""Servers measured side by side: with the same prompts, in turns."""

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from specgguf.measure.comparison import WARM_UP, Run, in_turns, summarize
from specgguf.measure.endpoint import Endpoint
from specgguf.measure.prompts import Prompt

METHOD = """Each prompt is one request for a streamed chat completion, to one server after the other, in
an order that turns with every prompt. Speed is the geometric mean over prompts of the paired ratios of seconds per
token, from the second piece on, with a 95% interval bootstrapped over prompts. Counted: whether the server has told the
number of tokens (usage) or the pieces it sent were counted, of which one may hold several tokens."""


def measure(
    endpoints: Mapping[str, Endpoint],
    prompts: Sequence[Prompt],
    max_tokens: int,
    temperature: float,
    seed: int,
    repeat: int,
    on_progress: Callable[[int, int], object],
) -> Iterator[list[Run]]:
    """Have every prompt answered by every server, `repeat` times. Before that each gives a short answer to wake up."""
    for endpoint in endpoints.values():
        endpoint.ask(prompts[0].prompt, WARM_UP, temperature, seed)
    done, total = 0, repeat * len(prompts) * len(endpoints)
    for number, turned in in_turns(len(prompts), list(endpoints), repeat):
        prompt, runs = prompts[number], []
        for arm in turned:
            on_progress(done, total)
            answer = endpoints[arm].ask(prompt.prompt, max_tokens, temperature, seed)
            runs.append(
                Run(
                    arm,
                    prompt.category,
                    number,
                    max(0, answer.num_tokens - 1),
                    answer.last_s - answer.first_s,
                    answer.first_s,
                    answer.last_s,
                    answer.num_tokens,
                    counted_by=answer.counted_by,
                )
            )
            done += 1
        yield runs


def report(endpoints: Mapping[str, Endpoint], base: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Everything that was measured of servers, relative to the one named `base`; raises UsageError if nothing could be
    timed."""
    rows = summarize(runs, base, {})
    if len(endpoints) == 1:  # nothing to compare with
        rows = [{name: value for name, value in row.items() if not name.startswith("speed")} for row in rows]
    return {
        **{arm: {"url": endpoint.url, "model": endpoint.model} for arm, endpoint in endpoints.items()},
        "machine": {"system": platform.platform(), "specgguf": version("specgguf")},
        "method": " ".join(METHOD.split()),
        "rows": rows,
        "runs": [asdict(run) for run in runs],
    }
