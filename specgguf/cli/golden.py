"""`specgguf golden`: regression tests of the text itself."""

from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli.defaults import ConfiguredCommand
from specgguf.cli.opening import engine_settings, open_engine, open_store
from specgguf.cli.options.drafting import Drafting, DraftMax
from specgguf.cli.options.groups import grouped, only, without
from specgguf.cli.options.measuring import AnswerTokens, Prompts
from specgguf.cli.options.models import Models, Offline
from specgguf.cli.options.output import Json, Yes
from specgguf.cli.options.resources import Resources
from specgguf.cli.options.sampling import SeededSampling
from specgguf.cli.terminal import output
from specgguf.engine.settings import Mode
from specgguf.errors import about
from specgguf.text.files import check_place, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specgguf.engine.engine import Engine
    from specgguf.measure.golden import Golden, Outcome
    from specgguf.measure.prompts import Prompt

golden = typer.Typer(help="Record what a target says, and verify that it still says so while speculating.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="The golden file.")]
_PLACEMENT = only("gpu_layers", "draft_gpu_layers", "threads")


@dataclass(frozen=True)
class RecordedDrafting(Drafting):
    """How to draft while recording."""

    speculate: Annotated[Mode, typer.Option("--speculate", help="How to draft.")] = Mode.FIXED


@dataclass(frozen=True)
class Answering:
    """The options that say what is recorded."""

    prompts: Prompts = None
    max_tokens: AnswerTokens = 64

    def read(self) -> "list[Prompt]":
        """The prompts."""
        from specgguf.measure.prompts import GOLDEN, built_in, read_prompts

        with about("prompts"):
            return read_prompts(self.prompts) if self.prompts else built_in(GOLDEN)


@dataclass(frozen=True)
class Changes:
    """The options for drafting otherwise than in the recording."""

    draft_max: DraftMax = None
    speculate: Annotated[
        Mode | None, typer.Option("--speculate", help="How to draft; default: as in the recording, or fixed with -k.")
    ] = None
    exact: Annotated[
        bool | None,
        typer.Option(
            "--exact/--no-exact", help="Keep to batch widths that give equal bits; default: as in the recording."
        ),
    ] = None

    def drafting(self, recorded: "Golden") -> Drafting:
        """How to draft: as given, or as in the recording if nothing is given that says how."""
        exact = recorded.exact if self.exact is None else self.exact
        if self.speculate is None and self.draft_max is None:
            return Drafting(draft_max=recorded.draft_max, speculate=Mode(recorded.speculate), exact=exact)
        return Drafting(draft_max=self.draft_max, speculate=self.speculate or Mode.FIXED, exact=exact)


@golden.command(cls=ConfiguredCommand)
@grouped
def record(
    file: File,
    answering: Answering,
    models: Models,
    drafting: Annotated[RecordedDrafting, without("ngram_store")],
    sampling: Annotated[SeededSampling, only("temperature", "top_k", "top_p", "min_p", "seed")],
    resources: Annotated[Resources, _PLACEMENT],
    offline: Offline = False,
    yes: Yes = False,
) -> None:
    """Answer the prompts by plain decoding, and write down tokens, margins, models and machine.

    They are answered once more while drafting, for the acceptance rate.
    """
    from specgguf.measure import golden as goldens

    check_place(file)
    if file.exists() and not yes and not output.confirm(f"Overwrite {file}?"):
        return
    prompts = answering.read()
    store = open_store(offline)
    recordings = []
    engine = open_engine(store, models, engine_settings(drafting, resources))
    with closing(engine), closing(store.progress):
        sampler = engine.sampler(**sampling.given())
        for number, prompt in enumerate(prompts):
            seeded = replace(sampler, seed=sampler.seed + number)
            recordings.append(goldens.record(engine, prompt, seeded, answering.max_tokens))
            store.progress.show("recording", number + 1, len(prompts))
        recorded = goldens.Golden(
            made_with=goldens.circumstances(engine, store.digests.of),
            models=asdict(models),
            sampling=goldens.sampling_of(sampler),
            exact=drafting.exact,
            speculate=drafting.speculate.value,
            draft_max=drafting.draft_max,
            max_tokens=answering.max_tokens,
            prompts=recordings,
        )
    save(file, recorded.dump())
    output.note(f"recorded {len(recordings)} {'prompt' if len(recordings) == 1 else 'prompts'} in {file}")


@golden.command(cls=ConfiguredCommand)
@grouped
def verify(
    file: File,
    models: Models,
    changes: Changes,
    max_acceptance_drop: Annotated[
        float | None,
        typer.Option(
            "--max-acceptance-drop",
            min=0.0,
            max=1.0,
            metavar="D",
            help="Fail if an acceptance rate is lower than the recorded one by more than D.",
        ),
    ] = None,
    *,
    resources: Annotated[Resources, _PLACEMENT],
    offline: Offline = False,
    json: Json = False,
) -> None:
    """Answer the recorded prompts while drafting; exit code 1 if a text differs where no rounding explains it.

    Models that no option names are those of the recording. Without options that say how to draft, it is done as in the
    recording: only then can acceptance rates be compared.
    """
    from specgguf.measure import golden as goldens

    recorded = goldens.load(file)
    store = open_store(offline)
    noise = goldens.Noise()
    settings = engine_settings(changes.drafting(recorded), resources)
    engine = open_engine(store, models.or_recorded(recorded.models), settings)
    with closing(engine), closing(store.progress):
        differences = goldens.changes(recorded.made_with, goldens.circumstances(engine, store.digests.of))
        for difference in differences:
            output.note(difference)
        outcomes = []
        for outcome in goldens.verify(engine, recorded, noise):
            outcomes.append(outcome)
            store.progress.show("verifying", len(outcomes), len(recorded.prompts))
        store.progress.close()  # before anything is printed
        if num_changed := sum(outcome.prompt_changed for outcome in outcomes):
            differences.append(
                f"what the chat template makes of the prompts has changed since the recording, for {num_changed} of "
                f"{len(outcomes)}: there may be a date in it; they were answered as recorded"
            )
            output.note(differences[-1])
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
    from specgguf.measure.golden import Sameness

    verdicts = [outcome.verdict for outcome in outcomes]
    drops = [max_drop is not None and outcome.acceptance_drop > max_drop for outcome in outcomes]
    return {
        "passed": "different" not in verdicts and not any(drops),
        "exact": engine.is_exact,
        "same": verdicts.count(Sameness.SAME),
        "near_ties": verdicts.count(Sameness.NEAR_TIE),
        "different": verdicts.count(Sameness.DIFFERENT),
        "acceptance_dropped": sum(drops),
        "noise": noise,
        "changes": list(changes),
        "prompts": [
            {
                **asdict(outcome),
                "expected_text": _text_of(engine, outcome.expected),
                "found_text": _text_of(engine, outcome.found),
                "acceptance_dropped": dropped,
            }
            for outcome, dropped in zip(outcomes, drops, strict=True)
        ],
    }


def _text_of(engine: "Engine", token: int | None) -> str | None:
    return None if token is None else engine.target.vocab.piece(token).decode("utf-8", "replace")


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
