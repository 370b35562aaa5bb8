"""`specgguf bench`: plain against speculative decoding, interleaved."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from specgguf.cli import options
from specgguf.cli.opening import Models, check_adaptive, open_engine, open_store
from specgguf.cli.terminal import output
from specgguf.engine.settings import DRAFT_MAX, MAX_DRAFT, EngineSettings, Mode
from specgguf.errors import INTERRUPTED, UsageError
from specgguf.text.files import check_place, save

if TYPE_CHECKING:
    from specgguf.measure.bench import Arm
    from specgguf.measure.prompts import Prompt

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

EndpointUrl = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="Measure an OpenAI-compatible server instead, with the key in OPENAI_API_KEY if it wants one.",
    ),
]
BaselineUrl = Annotated[
    str | None, typer.Option("--endpoint-baseline", metavar="URL", help="A server to compare it with, in turns.")
]
EndpointModel = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="The servers' model; default: the first they list.")
]
_OF_SERVERS = (
    *("endpoint", "endpoint_baseline", "model", "prompts", "repeat", "report"),
    *("max_tokens", "temperature", "seed", "json"),
)
"""The parameters that mean something for a server."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be answered, and how often."""

    prompts: Sequence["Prompt"]
    max_tokens: int
    temperature: float
    seed: int
    repeat: int

    def described(self) -> dict[str, Any]:
        """For the report."""
        return {
            "date": date.today().isoformat(),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "repeat": self.repeat,
        }


def bench(
    context: typer.Context,
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
    endpoint: EndpointUrl = None,
    endpoint_baseline: BaselineUrl = None,
    model: EndpointModel = None,
    json: options.Json = False,
) -> None:
    """Measure how much faster than plain decoding a pair is on this machine, by kind of text.

    Run nothing else meanwhile. `speed` is relative to plain decoding of the same prompts, with a 95% interval; `of
    oracle` is the share of the speed that drafting could have had at best. Ctrl-C ends it with what there is.
    """
    if report:
        _check_report(report)
    from specgguf.measure.prompts import BENCH, built_in, read_prompts

    task = Task(read_prompts(prompts) if prompts else built_in(BENCH), max_tokens, temperature, seed, repeat)
    if endpoint:
        _check_of_servers(context, alone=endpoint_baseline is None)
        result = _measure_servers(task, endpoint, endpoint_baseline, model)
    elif endpoint_baseline or model:
        raise UsageError("--endpoint-baseline and --model are for servers", "give the one to measure with --endpoint")
    else:
        settings = EngineSettings(
            n_gpu_layers=gpu_layers,
            draft_n_gpu_layers=draft_gpu_layers,
            n_threads=threads,
            cache_type_k=cache_type_k,
            cache_type_v=cache_type_v,
            exact=exact,
        )
        models = Models(pair, target, draft, quant, draft_quant)
        result = _measure_pair(task, arm or [], models, draft_max, settings, offline)
    if json:
        output.write_json(result)
    else:
        _show(result["rows"])
    if report:
        _write_report(report, result)
    if result["interrupted"]:
        output.note("interrupted: not all prompts are in")
        raise typer.Exit(INTERRUPTED)


def _measure_pair(
    task: Task,
    arm: Sequence[str],
    models: Models,
    draft_max: int | None,
    settings: EngineSettings,
    offline: bool,
) -> dict[str, Any]:
    from specgguf.measure import bench as benchmark

    arms = [benchmark.PLAIN, benchmark.Arm("auto", Mode.AUTO), *map(_parse, dict.fromkeys(arm))]
    # A batch must have room for the longest fixed draft.
    num_draft = max([draft_max or DRAFT_MAX, *(way.num_draft for way in arms if way.num_draft)])
    settings = replace(settings, num_draft=num_draft)
    store = open_store(offline)
    with open_engine(store, models, settings) as engine, closing(store.progress):
        check_adaptive(engine)
        idle = [way.name for way in arms if way.mode in (Mode.MODEL, Mode.FIXED) and not engine.speculative]
        if idle:
            raise UsageError(f"--arm {idle[0]}: there is no draft model", "give one with --draft")
        sampler = engine.sampler(temperature=task.temperature, seed=task.seed)
        show = partial(store.progress.show, "measuring")
        measured, interrupted = _collect(
            benchmark.measure(engine, task.prompts, arms, sampler, task.max_tokens, task.repeat, show)
        )
        store.progress.close()  # before anything is printed
        return {**task.described(), "interrupted": interrupted, **benchmark.report(engine, measured)}


def _measure_servers(task: Task, url: str, baseline: str | None, model: str | None) -> dict[str, Any]:
    from specgguf.measure import servers as serverbench
    from specgguf.measure.endpoint import Endpoint

    progress = output.TerminalProgress()
    urls = {"endpoint": url} if baseline is None else {"baseline": baseline, "endpoint": url}
    with ExitStack() as resources, closing(progress):
        endpoints = {arm: resources.enter_context(Endpoint(url, model)) for arm, url in urls.items()}
        measured, interrupted = _collect(
            serverbench.measure(
                endpoints,
                task.prompts,
                task.max_tokens,
                task.temperature,
                task.seed,
                task.repeat,
                partial(progress.show, "measuring"),
            )
        )
        runs = [run for answers in measured for run in answers]
        return {**task.described(), "interrupted": interrupted, **serverbench.report(endpoints, next(iter(urls)), runs)}


def _collect(measuring: Iterator[T]) -> tuple[list[T], bool]:
    """What is measured until the end or until Ctrl-C, and whether that came."""
    measured = []
    try:
        for part in measuring:
            measured.append(part)  # noqa: PERF402 (kept when Ctrl-C comes)
    except KeyboardInterrupt:
        if not measured:
            raise
        return measured, True
    return measured, False


def _check_of_servers(context: typer.Context, alone: bool) -> None:
    """Raises UsageError for options that mean nothing for a server."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source and source.name == "COMMANDLINE" and name not in _OF_SERVERS:
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing for a server", "leave it out, or leave out --endpoint"
            )
    if alone and context.params["report"]:
        raise UsageError("--report shows a comparison", "give a server to compare with: --endpoint-baseline")


def _parse(text: str) -> "Arm":
    from specgguf.measure.bench import Arm

    fixed = re.fullmatch(r"fixed -k ([1-9][0-9]{0,2})", text)
    if fixed and int(fixed[1]) <= MAX_DRAFT:
        return Arm(text, Mode.FIXED, int(fixed[1]))
    if text in (Mode.MODEL, Mode.NGRAM):
        return Arm(text, Mode(text))
    if text in ("plain", "auto"):
        raise UsageError(f"--arm {text}: that is measured anyway", "leave it out")
    raise UsageError(f"--arm {text}: no way to decode", 'give model, ngram or "fixed -k 4"')


def _check_report(path: Path) -> None:
    """Before anything is measured."""
    if path.suffix not in (".html", ".svg"):
        raise UsageError(f"--report {path}: neither .html nor .svg", "give it one of these endings")
    check_place(path)


def _write_report(path: Path, result: dict[str, Any]) -> None:
    from specgguf.measure.charts import page, speeds

    save(path, page(result) if path.suffix == ".html" else speeds(result["rows"]))
    output.note(f"wrote {path}")


def _show(rows: Sequence[dict[str, Any]]) -> None:
    from specgguf.measure.charts import positions, table

    output.table(table(rows), left=2, bars=[row.get("speed", row["tokens_per_s"]) for row in rows])
    by_position = positions(rows, most=_POSITIONS)
    if by_position:
        output.write("\n")
        output.table(by_position, left=1)
