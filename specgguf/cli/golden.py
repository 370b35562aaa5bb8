"""`specgguf golden`: regression tests of the text itself."""

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli import options
from specgguf.cli.defaults import Command
from specgguf.cli.opening import Models, open_engine, open_store
from specgguf.cli.terminal import output
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.text.files import check_place, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specgguf.engine.engine import Engine
    from specgguf.measure.golden import Outcome

golden = typer.Typer(help="Record what a target says, and verify that it still says so while speculating.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="The golden file.")]
Drafts = Annotated[
    Mode | None, typer.Option("--speculate", help="How to draft; default: fixed, or as in the recording.")
]
ExactOrNot = Annotated[
    bool | None, typer.Option("--exact/--no-exact", help="Keep to widths of equal bits; default: as in the recording.")
]
MaxDrop = Annotated[
    float | None,
    typer.Option(
        "--max-acceptance-drop", min=0.0, max=1.0, metavar="D", help="Fail if the acceptance rate is lower by more."
    ),
]


@golden.command(cls=Command)
def record(
    file: File,
    prompts: options.Prompts = None,
    pair: options.Pair = None,
    target: options.Target = None,
    draft: options.Draft = None,
    quant: options.Quant = None,
    draft_quant: options.DraftQuant = None,
    speculate: Drafts = None,
    draft_max: options.DraftMax = None,
    exact: options.Exact = False,
    max_tokens: options.AnswerTokens = 64,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    seed: options.FirstSeed = 0,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    offline: options.Offline = False,
    yes: options.Yes = False,
) -> None:
    """Answer the prompts by plain decoding, and write down tokens, margins, models and machine.

    They are answered once more while drafting, for the acceptance rate.
    """
    from specgguf.measure import golden as goldens
    from specgguf.measure.prompts import GOLDEN, built_in, read_prompts

    check_place(file)
    if file.exists() and not yes and not output.confirm(f"Overwrite {file}?"):
        return
    chosen = read_prompts(prompts) if prompts else built_in(GOLDEN)
    store = open_store(offline)
    models = Models(pair, target, draft, quant, draft_quant)
    speculate = speculate or Mode.FIXED
    settings = EngineSettings(
        n_gpu_layers=gpu_layers,
        draft_n_gpu_layers=draft_gpu_layers,
        n_threads=threads,
        mode=speculate,
        num_draft=draft_max,
        exact=exact,
    )
    recordings = []
    with open_engine(store, models, settings) as engine, closing(store.progress):
        sampler = engine.sampler(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
        for number, prompt in enumerate(chosen):
            seeded = replace(sampler, seed=sampler.seed + number)
            recordings.append(goldens.record(engine, prompt, seeded, max_tokens))
            store.progress.show("recording", number + 1, len(chosen))
        recorded = goldens.Golden(
            made_with=goldens.circumstances(engine, store.digests.of),
            models=models._asdict(),
            sampling=goldens.sampling_of(sampler),
            exact=exact,
            speculate=speculate.value,
            draft_max=draft_max,
            max_tokens=max_tokens,
            prompts=recordings,
        )
    save(file, recorded.dump())
    output.note(f"recorded {len(recordings)} {'prompt' if len(recordings) == 1 else 'prompts'} in {file}")


@golden.command(cls=Command)
def verify(
    file: File,
    pair: options.Pair = None,
    target: options.Target = None,
    draft: options.Draft = None,
    quant: options.Quant = None,
    draft_quant: options.DraftQuant = None,
    speculate: Drafts = None,
    draft_max: options.DraftMax = None,
    exact: ExactOrNot = None,
    max_acceptance_drop: MaxDrop = None,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    offline: options.Offline = False,
    json: options.Json = False,
) -> None:
    """Answer the recorded prompts while drafting; exit code 1 if a text differs where no rounding explains it.

    Models that no option names are those of the recording; without options that say how to draft, its way:
    only then can acceptance rates be compared.
    """
    from specgguf.measure import golden as goldens

    recorded = goldens.load(file)
    models = Models(pair, target, draft, quant, draft_quant)
    if models.pair is None and models.target is None:  # the recorded target, perhaps with another draft
        models = Models(*(given or recorded.models.get(name) for name, given in models._asdict().items()))
    if speculate is None and draft_max is None:
        speculate, draft_max = Mode(recorded.speculate), recorded.draft_max
    store = open_store(offline)
    settings = EngineSettings(
        n_gpu_layers=gpu_layers,
        draft_n_gpu_layers=draft_gpu_layers,
        n_threads=threads,
        mode=speculate or Mode.FIXED,
        num_draft=draft_max,
        exact=recorded.exact if exact is None else exact,
    )
    noise = goldens.Noise()
    with open_engine(store, models, settings) as engine, closing(store.progress):
        differences = goldens.changes(recorded.made_with, goldens.circumstances(engine, store.digests.of))
        for difference in differences:
            output.note(difference)
        outcomes = []
        for outcome in goldens.verify(engine, recorded, noise):
            outcomes.append(outcome)
            store.progress.show("verifying", len(outcomes), len(recorded.prompts))
        store.progress.close()  # before anything is printed
        report = _as_dict(engine, outcomes, noise.level, differences, max_acceptance_drop)
        if json:
            output.write_json(report)
        else:
            output.write(_as_text(report))
    if not report["passed"]:
        raise typer.Exit(1)


def _as_dict(
    engine: "Engine", outcomes: "Sequence[Outcome]", noise: float, changes: "Sequence[str]", max_drop: float | None
) -> dict[str, Any]:
    from specgguf.measure.golden import Verdict

    verdicts = [outcome.verdict for outcome in outcomes]
    drops = [max_drop is not None and outcome.acceptance_drop > max_drop for outcome in outcomes]
    return {
        "passed": "different" not in verdicts and not any(drops),
        "exact": engine.is_exact,
        "same": verdicts.count(Verdict.SAME),
        "near_ties": verdicts.count(Verdict.NEAR_TIE),
        "different": verdicts.count(Verdict.DIFFERENT),
        "acceptance_dropped": sum(drops),
        "noise": noise,
        "changes": list(changes),
        "prompts": [
            {
                **asdict(outcome),
                "expected_text": _spelled(engine, outcome.expected),
                "found_text": _spelled(engine, outcome.found),
                "acceptance_dropped": dropped,
            }
            for outcome, dropped in zip(outcomes, drops, strict=True)
        ],
    }


def _spelled(engine: "Engine", token: int | None) -> str | None:
    return None if token is None else engine.piece(token).decode("utf-8", "replace")


def _as_text(report: dict[str, Any]) -> str:
    lines = []
    for number, entry in enumerate(report["prompts"], 1):
        line = f"{number:3d} {entry['category']:12s} {entry['verdict']:9s}"
        if entry["position"] is not None:
            margin = "the end" if entry["margin"] is None else f"margin {entry['margin']:.3f}"
            line += f" at token {entry['position']}: {entry['expected']} {entry['expected_text']!r} was recorded, "
            line += f"{entry['found']} {entry['found_text']!r} found; {margin}"
        if entry["acceptance_dropped"]:
            line += f" acceptance rate lower by {entry['acceptance_drop']:.2f}"
        lines.append(line.rstrip())
    lines.append(
        f"{report['same']} of {len(report['prompts'])} the same, {report['near_ties']} near-ties, "
        f"{report['different']} different; the gap between the two best tokens was seen to move by "
        f"{report['noise']:.3f} with the batch width"
    )
    return "\n".join(lines) + "\n"
