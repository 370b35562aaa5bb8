"""`specgguf bench`: plain against speculative decoding, interleaved."""

import re
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli import options, output
from specgguf.cli.opening import Models, open_engine, open_store
from specgguf.cli.options import Speculate
from specgguf.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specgguf.bench import Arm

Arms = Annotated[
    list[str] | None,
    typer.Option("--arm", metavar="ARM", help='Beside plain and auto: model, ngram, "fixed -k 4"; repeatable.'),
]
Repeat = Annotated[int, typer.Option("--repeat", min=1, metavar="N", help="Answer every prompt so many times.")]


def bench(
    arm: Arms = None,
    prompts: options.Prompts = None,
    repeat: Repeat = 1,
    pair: options.Pair = None,
    target: options.Target = None,
    draft: options.Draft = None,
    quant: options.Quant = None,
    draft_quant: options.DraftQuant = None,
    draft_max: options.DraftMax = None,
    exact: options.Exact = False,
    max_tokens: options.AnswerTokens = 128,
    temperature: options.Temperature = 0.0,
    seed: options.FirstSeed = 0,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    cache_type_k: options.CacheTypeK = None,
    cache_type_v: options.CacheTypeV = None,
    offline: options.Offline = False,
    json: options.Json = False,
) -> None:
    """Measure how much faster than plain decoding a pair is on this machine, by kind of text.

    Run nothing else meanwhile. `speed` is relative to plain decoding of the same prompts, with a 95% interval.
    """
    from specgguf.bench import PLAIN, Arm, measure, summarize
    from specgguf.engine import EngineSettings
    from specgguf.prompts import BENCH, built_in, read_prompts

    arms = [PLAIN, Arm("auto", "auto"), *map(_parse, arm or [])]
    # A batch must have room for the longest fixed draft.
    draft_max = max([draft_max or options.DRAFT_MAX, *(way.num_draft for way in arms if way.num_draft)])
    chosen = read_prompts(prompts) if prompts else built_in(BENCH)
    settings = EngineSettings(
        n_gpu_layers=gpu_layers,
        draft_n_gpu_layers=draft_gpu_layers,
        n_threads=threads,
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v,
        exact=exact,
    )
    store = open_store(offline)
    models = Models(pair, target, draft, quant, draft_quant)
    with open_engine(store, models, Speculate.AUTO, draft_max, settings) as engine, closing(store.progress):
        sampler = engine.sampler(temperature=temperature, seed=seed)
        runs = list(
            measure(
                engine,
                chosen,
                arms,
                sampler,
                max_tokens,
                repeat,
                lambda done, total: store.progress.show("measuring", done, total),
            )
        )
        store.progress.close()  # before anything is printed
        report: dict[str, Any] = {
            "target": engine.target_header.path.name,
            "draft": engine.draft_header.path.name if engine.draft_header else None,
            "machine": engine.describe()[0],
            "threads": threads,
            "exact": engine.is_exact,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "rows": summarize(runs),
        }
    if json:
        output.write_json(report)
    else:
        output.write(_table(report["rows"]))


def _parse(text: str) -> "Arm":
    from specgguf.bench import Arm

    fixed = re.fullmatch(r"fixed -k ([1-9][0-9]{0,2})", text)
    if fixed:
        return Arm(text, "fixed", int(fixed[1]))
    if text in ("model", "ngram"):
        return Arm(text, "model" if text == "model" else "ngram")
    raise UsageError(f"--arm {text}: no way to decode", 'give model, ngram or "fixed -k 4"')


def _table(rows: "Sequence[dict[str, Any]]") -> str:
    lines = [
        f"{'category':12s} {'arm':12s} {'tokens/s':>8s} {'speed':>6s} {'interval':>12s} {'worst':>6s} "
        f"{'length':>6s} {'accepted':>8s} {'undrafted':>9s} {'outside':>7s}"
    ]
    for row in rows:
        interval = f"{row['speed_low']:.2f} - {row['speed_high']:.2f}"
        lines.append(
            f"{row['category']:12s} {row['arm']:12s} {row['tokens_per_s']:8.1f} {row['speed']:6.2f} {interval:>12s} "
            f"{row['speed_worst']:6.2f} {row['mean_acceptance_length']:6.2f} {row['acceptance_rate']:8.0%} "
            f"{row['undrafted']:9.0%} {row['outside']:7.2%}"
        )
    return "\n".join(lines) + "\n"
