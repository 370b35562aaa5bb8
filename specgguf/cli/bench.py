"""`specgguf bench`: plain against speculative decoding, interleaved."""

import re
from contextlib import closing
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli import options, output
from specgguf.cli.opening import Models, open_engine, open_store
from specgguf.cli.options import Speculate
from specgguf.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specgguf.bench import Arm

_POSITIONS = 16
"""Columns of the table of acceptance by position."""

Arms = Annotated[
    list[str] | None,
    typer.Option("--arm", metavar="ARM", help='Beside plain and auto: model, ngram, "fixed -k 4"; repeatable.'),
]
Repeat = Annotated[int, typer.Option("--repeat", min=1, metavar="N", help="Answer every prompt so many times.")]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write a page (.html) or a chart (.svg) too; an old one goes."),
]


def bench(
    arm: Arms = None,
    prompts: options.Prompts = None,
    repeat: Repeat = 1,
    report: Report = None,
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

    Run nothing else meanwhile. `speed` is relative to plain decoding of the same prompts, with a 95% interval; `of
    oracle` is the share of the speed that drafting could have had at best. Ctrl-C ends it with what there is.
    """
    if report:
        _check_report(report)
    from specgguf import bench as benchmark
    from specgguf.engine import EngineSettings
    from specgguf.prompts import BENCH, built_in, read_prompts

    arms = [benchmark.PLAIN, benchmark.Arm("auto", "auto"), *map(_parse, dict.fromkeys(arm or []))]
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
    measured, interrupted = [], False
    with open_engine(store, models, Speculate.AUTO, draft_max, settings) as engine, closing(store.progress):
        for line in engine.notices:
            output.note(line)
        idle = [way.name for way in arms if way.mode in ("model", "fixed") and not engine.speculative]
        if idle:
            raise UsageError(f"--arm {idle[0]}: there is no draft model", "give one with --draft")
        sampler = engine.sampler(temperature=temperature, seed=seed)
        show = partial(store.progress.show, "measuring")
        try:
            for prompt in benchmark.measure(engine, chosen, arms, sampler, max_tokens, repeat, show):
                measured.append(prompt)  # noqa: PERF402 (kept when Ctrl-C comes)
        except KeyboardInterrupt:
            if not measured:
                raise
            interrupted = True
        store.progress.close()  # before anything is printed
        result = {
            "date": date.today().isoformat(),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "interrupted": interrupted,
            **benchmark.report(engine, measured),
        }
    if json:
        output.write_json(result)
    else:
        _show(result["rows"])
    if report:
        _write_report(report, result)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _parse(text: str) -> "Arm":
    from specgguf.bench import Arm

    fixed = re.fullmatch(r"fixed -k ([1-9][0-9]{0,2})", text)
    if fixed and int(fixed[1]) <= options.MAX_DRAFT:
        return Arm(text, "fixed", int(fixed[1]))
    if text in ("model", "ngram"):
        return Arm(text, "model" if text == "model" else "ngram")
    raise UsageError(f"--arm {text}: no way to decode", 'give model, ngram or "fixed -k 4"')


def _check_report(path: Path) -> None:
    """Before anything is measured."""
    if path.suffix not in (".html", ".svg"):
        raise UsageError(f"--report {path}: neither .html nor .svg", "give it one of these endings")
    if not path.absolute().parent.is_dir() or path.is_dir():
        raise UsageError(f"{path} cannot be written: there is no such folder", "choose another place")


def _write_report(path: Path, result: dict[str, Any]) -> None:
    from specgguf.charts import page, speeds
    from specgguf.files import write_whole

    try:
        write_whole(path, page(result) if path.suffix == ".html" else speeds(result["rows"]))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "choose another place") from None
    output.note(f"wrote {path}")


_COLUMNS = {
    "category": "{category}",
    "arm": "{arm}",
    "tokens/s": "{tokens_per_s:.1f}",
    "speed": "{speed:.2f}",
    "interval": "{speed_low:.2f} - {speed_high:.2f}",
    "worst": "{speed_worst:.2f}",
    "of oracle": "{of_oracle:.0%}",
    "length": "{mean_acceptance_length:.2f}",
    "accepted": "{acceptance_rate:.0%}",
    "undrafted": "{undrafted:.0%}",
    "first s": "{first_token_s:.2f}",
    "p50 s": "{last_token_s_p50:.1f}",
    "p95 s": "{last_token_s_p95:.1f}",
    "outside": "{outside:.2%}",
}


def _show(rows: "Sequence[dict[str, Any]]") -> None:
    lines = [[form.format(**row) for form in _COLUMNS.values()] for row in rows]
    output.table([list(_COLUMNS), *lines], left=2, bars=[row["speed"] for row in rows])
    positions = [
        [row["arm"], *(f"{share:.0%}" for share in row["per_position"][:_POSITIONS])]
        for row in rows
        if row["category"] == "all" and row["per_position"]
    ]
    if positions:
        width = max(map(len, positions))
        head = ["accepted at", *map(str, range(1, width))]
        output.write("\n")
        output.table([head, *(line + [""] * (width - len(line)) for line in positions)], left=1)
