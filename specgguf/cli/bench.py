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

from specgguf.cli.opening import engine_settings, open_engine, open_store
from specgguf.cli.options.drafting import Drafting
from specgguf.cli.options.groups import grouped, only, without
from specgguf.cli.options.measuring import AnswerTokens, Prompts
from specgguf.cli.options.models import Models, Offline
from specgguf.cli.options.output import Json
from specgguf.cli.options.resources import Resources
from specgguf.cli.options.sampling import SeededSampling
from specgguf.cli.options.values import num_texts
from specgguf.cli.terminal import output
from specgguf.cli.terminal.progress import TerminalProgress
from specgguf.engine.settings import MAX_DRAFT, EngineSettings, Mode
from specgguf.errors import INTERRUPTED, UsageError, about
from specgguf.text.files import check_place, save

if TYPE_CHECKING:
    from specgguf.measure.bench import Arm
    from specgguf.measure.prompts import Prompt

_POSITIONS = 16
"""Columns of the table of acceptance by position."""

_OF_SERVERS = (
    *("endpoint", "endpoint_baseline", "model", "prompts", "repeat", "report"),
    *("max_tokens", "temperature", "seed", "json"),
)
"""The parameters that mean something for a server."""

T = TypeVar("T")


@dataclass(frozen=True)
class Questions:
    """The options that say what is to be answered, and how often."""

    prompts: Prompts = None
    repeat: Annotated[int, typer.Option("--repeat", min=1, metavar="N", help="Answer every prompt N times.")] = 1
    max_tokens: AnswerTokens = 128

    def read(self) -> "list[Prompt]":
        """The prompts."""
        from specgguf.measure.prompts import BENCH, built_in, read_prompts

        with about("prompts"):
            return read_prompts(self.prompts) if self.prompts else built_in(BENCH)


@dataclass(frozen=True)
class Servers:
    """The options for servers to measure instead of a pair."""

    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            help="Measure an OpenAI-compatible server instead, with the key in OPENAI_API_KEY if it wants one.",
        ),
    ] = None
    endpoint_baseline: Annotated[
        str | None,
        typer.Option(
            "--endpoint-baseline", metavar="URL", help="A server to compare it with; the two are asked in turn."
        ),
    ] = None
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The servers' model; default: the first they list.")
    ] = None


@dataclass(frozen=True)
class Form:
    """The options for what is shown."""

    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Write a page (.html) or a chart (.svg) too; replaces an existing one."
        ),
    ] = None
    json: Json = False


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be answered, and how."""

    prompts: Sequence["Prompt"]
    questions: Questions
    sampling: SeededSampling

    def described(self) -> dict[str, Any]:
        """For the report."""
        return {
            "date": date.today().isoformat(),
            "max_tokens": self.questions.max_tokens,
            "temperature": self.sampling.temperature,
            "seed": self.sampling.seed,
            "repeat": self.questions.repeat,
        }


@grouped
def bench(
    context: typer.Context,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            "--arm", metavar="ARM", help='Beside plain and auto: a --speculate mode, or "fixed -k 4"; repeatable.'
        ),
    ] = None,
    parallel: Annotated[
        list[int] | None,
        typer.Option(
            "--parallel",
            parser=num_texts,
            metavar="N|auto",
            help="Measure all prompts as a whole instead, one at a time and up to N at once; repeatable.",
        ),
    ] = None,
    *,
    questions: Questions,
    models: Models,
    drafting: Annotated[Drafting, only("draft_max", "exact")],
    sampling: Annotated[SeededSampling, only("temperature", "seed")],
    resources: Annotated[Resources, without("ctx", "draft_ctx")],
    servers: Servers,
    form: Form,
    offline: Offline = False,
) -> None:
    """Measure how much faster than plain decoding a pair is on this machine, by kind of text.

    Run nothing else meanwhile. `speed` is relative to plain decoding of the same prompts, with a 95% interval; `of
    oracle` is the share of the speed that drafting could have had at best. Ctrl-C ends it with what there is.
    """
    if form.report:
        _check_report(form.report)
    task = Task(questions.read(), questions, sampling)
    if servers.endpoint:
        _check_of_servers(context, alone=servers.endpoint_baseline is None)
        result = _measure_servers(task, servers.endpoint, servers.endpoint_baseline, servers.model)
    elif servers.endpoint_baseline or servers.model:
        raise UsageError("--endpoint-baseline and --model are for servers", "give the one to measure with --endpoint")
    elif parallel and arm:
        raise UsageError("--parallel and --arm exclude each other", "measure one after the other", ("arm", "parallel"))
    elif parallel:
        counts = [count or None for count in parallel]
        result = _measure_many(task, counts, models, engine_settings(drafting, resources), offline)
    else:
        result = _measure_pair(task, arm or [], models, engine_settings(drafting, resources), offline)
    if form.json:
        output.write_json(result)
    else:
        _show(result["rows"])
    if form.report:
        _write_report(form.report, result)
    if result["interrupted"]:
        output.note("interrupted: not all prompts are in")
        raise typer.Exit(INTERRUPTED)


def _measure_pair(
    task: Task, arm: Sequence[str], models: Models, settings: EngineSettings, offline: bool
) -> dict[str, Any]:
    from specgguf.measure import bench as benchmark

    arms = [benchmark.PLAIN, benchmark.Arm("auto", Mode.AUTO), *map(_parse, dict.fromkeys(arm))]
    # A batch must have room for the longest fixed draft.
    most = max([settings.draft_max, *(way.num_draft for way in arms if way.num_draft)])
    store = open_store(offline)
    engine = open_engine(store, models, replace(settings, num_draft=most))
    with closing(engine), closing(store.progress):
        engine.open(1)
        idle = [way.name for way in arms if way.mode not in (Mode.AUTO, Mode.OFF) and not engine.drafters(way.mode)]
        if idle:
            raise UsageError(f"--arm {idle[0]}: nothing drafts in that way", "give a draft with --draft", ("arm",))
        sampler = engine.sampler(**task.sampling.given())
        show = partial(store.progress.show, "measuring")
        measured, interrupted = _collect(
            benchmark.measure(
                engine, task.prompts, arms, sampler, task.questions.max_tokens, task.questions.repeat, show
            )
        )
        store.progress.close()  # before anything is printed
        return {**task.described(), "interrupted": interrupted, **benchmark.report(engine, measured)}


def _measure_many(
    task: Task, num_parallel: Sequence[int | None], models: Models, settings: EngineSettings, offline: bool
) -> dict[str, Any]:
    from specgguf.measure import throughput

    store = open_store(offline)
    engine = open_engine(store, models, replace(settings, num_parallel=None))
    with closing(engine), closing(store.progress):
        measured, interrupted = _collect(
            throughput.measure(
                engine,
                task.prompts,
                throughput.arms_of(num_parallel),
                engine.sampler(**task.sampling.given()),
                task.questions.max_tokens,
                task.questions.repeat,
                partial(store.progress.show, "measuring"),
            )
        )
        store.progress.close()  # before anything is printed
        return {**task.described(), "interrupted": interrupted, **throughput.report(engine, measured)}


def _measure_servers(task: Task, url: str, baseline: str | None, model: str | None) -> dict[str, Any]:
    from specgguf.measure import servers as serverbench
    from specgguf.measure.endpoint import Endpoint

    progress = TerminalProgress()
    urls = {"endpoint": url} if baseline is None else {"baseline": baseline, "endpoint": url}
    with ExitStack() as resources, closing(progress):
        endpoints = {arm: resources.enter_context(closing(Endpoint(url, model))) for arm, url in urls.items()}
        measured, interrupted = _collect(
            serverbench.measure(
                endpoints,
                task.prompts,
                task.questions.max_tokens,
                task.sampling.temperature,
                task.sampling.seed,
                task.questions.repeat,
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
    """Raises UsageError for options that mean nothing for a server; `alone`: there is no server to compare with."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source and source.name == "COMMANDLINE" and name not in _OF_SERVERS:
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing for a server", "leave it out, or leave out --endpoint"
            )
    if alone and context.params["report"]:
        raise UsageError(
            "--report shows a comparison", "give a server to compare with: --endpoint-baseline", ("report",)
        )


def _parse(text: str) -> "Arm":
    from specgguf.measure.bench import Arm

    fixed = re.fullmatch(r"fixed -k ([1-9][0-9]{0,2})", text)
    if fixed and int(fixed[1]) <= MAX_DRAFT:
        return Arm(text, Mode.FIXED, int(fixed[1]))
    if text in ("plain", Mode.AUTO, Mode.OFF):
        raise UsageError(f"--arm {text}: that is measured anyway", "leave it out", ("arm",))
    known = [mode.value for mode in Mode if mode not in (Mode.AUTO, Mode.FIXED, Mode.OFF)]
    if text in known:
        return Arm(text, Mode(text))
    raise UsageError(f"--arm {text}: no way to decode", f'give {", ".join(known)} or "fixed -k 4"', ("arm",))


def _check_report(path: Path) -> None:
    """Before anything is measured."""
    if path.suffix not in (".html", ".svg"):
        raise UsageError(f"--report {path}: neither .html nor .svg", "give it one of these endings", ("report",))
    with about("report"):
        check_place(path)


def _write_report(path: Path, result: dict[str, Any]) -> None:
    from specgguf.measure.charts import page, speeds

    with about("report"):
        save(path, page(result) if path.suffix == ".html" else speeds(result["rows"]))
    output.note(f"wrote {path}")


def _show(rows: Sequence[dict[str, Any]]) -> None:
    from specgguf.measure.charts import positions, table

    output.table(table(rows), left=2, bars=[row.get("speed", row["tokens_per_s"]) for row in rows])
    by_position = positions(rows, most=_POSITIONS)
    if by_position:
        output.write("\n")
        output.table(by_position, left=1)
