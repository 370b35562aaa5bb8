"""How tokens are chosen."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from specgguf.engine.settings import CHAT_TEMPERATURE


@dataclass(frozen=True)
class Sampling:
    """The options of a sampler. What is None is as the model's file says, or else as in llama.cpp."""

    temperature: Annotated[
        float | None,
        typer.Option(
            "--temp",
            min=0.0,
            max=100.0,
            metavar="T",
            help=f"Temperature; 0 is greedy; default: the model's, or else {CHAT_TEMPERATURE}.",
        ),
    ] = None
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", min=0, metavar="N", help="Keep the N likeliest tokens; 0: all; default: 40."),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p", min=0.0, max=1.0, metavar="P", help="Keep the likeliest of mass P; 1: all; default: 0.95."
        ),
    ] = None
    min_p: Annotated[
        float | None,
        typer.Option(
            "--min-p", min=0.0, max=1.0, metavar="P", help="Drop those below P times the likeliest; default: 0.05."
        ),
    ] = None
    typical_p: Annotated[
        float | None,
        typer.Option(
            "--typical-p", min=0.0, max=1.0, metavar="P", help="Keep the most typical of mass P; default: 1, all."
        ),
    ] = None
    repeat_penalty: Annotated[
        float | None,
        typer.Option(
            "--repeat-penalty", min=0.01, max=100.0, metavar="R", help="For the last 64 tokens; default: 1, none."
        ),
    ] = None
    presence_penalty: Annotated[
        float | None,
        typer.Option("--presence-penalty", min=-100.0, max=100.0, metavar="A", help="For each token seen; default: 0."),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        typer.Option(
            "--frequency-penalty", min=-100.0, max=100.0, metavar="A", help="For each time it was seen; default: 0."
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, max=2**63 - 1, metavar="N", help="Seed; default: a new one every time."),
    ] = None

    def given(self) -> dict[str, Any]:
        """What is not None, by the names of `Sampler`."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class GreedySampling(Sampling):
    """The same, greedy where nothing else is asked for."""

    temperature: Annotated[
        float, typer.Option("--temp", min=0.0, max=100.0, metavar="T", help="Temperature; 0 is greedy.")
    ] = 0.0


@dataclass(frozen=True)
class SeededSampling(GreedySampling):
    """The same for many answers, whose seeds are known beforehand."""

    seed: Annotated[int, typer.Option("--seed", min=0, max=2**62, metavar="N", help="Seed of the first answer.")] = 0
