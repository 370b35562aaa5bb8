"""Which models to use."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specgguf.cli.completion import draft_quants, pair_names, references, target_quants
from specgguf.cli.habits import PAIR_HINT
from specgguf.cli.options.precedence import unless_overridden
from specgguf.errors import SpecggufError, UnknownQuantError, UsageError, about

if TYPE_CHECKING:
    from specgguf.models.catalogue import Catalogue, Pair
    from specgguf.models.files import ModelFile
    from specgguf.models.references import Resolver


NO_DRAFT = "none"
"""What --draft says to have neither a draft model nor a head."""


@dataclass(frozen=True)
class Models:
    """The options that name a target and a draft."""

    pair: Annotated[
        str | None,
        typer.Option(
            "--pair",
            "-p",
            metavar="NAME",
            help="A pair of models.toml.",
            autocompletion=pair_names,
            callback=unless_overridden,
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-m",
            metavar="REF",
            help="Target: a GGUF file, MODEL[:QUANT] of models.toml, hf:owner/repo[:QUANT], or ollama:NAME[:TAG].",
            autocompletion=references,
            callback=unless_overridden,
        ),
    ] = None
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft",
            "-d",
            metavar="REF",
            help="Draft model or head: named in the same ways; none: neither.",
            autocompletion=references,
            callback=unless_overridden,
        ),
    ] = None
    quant: Annotated[
        str | None,
        typer.Option(
            "--quant",
            "-q",
            metavar="TYPE",
            help="Quantization of the target; an unknown one lists what there is.",
            autocompletion=target_quants,
            callback=unless_overridden,
        ),
    ] = None
    draft_quant: Annotated[
        str | None,
        typer.Option(
            "--draft-quant",
            metavar="TYPE",
            help="The same for the draft; made on this machine if nobody publishes it.",
            autocompletion=draft_quants,
            callback=unless_overridden,
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raises UsageError for an option that is given and empty."""
        for name, value in asdict(self).items():
            if value is not None and not value.strip():
                option = name.replace("_", "-")
                raise UsageError(f"--{option} is empty", "name one, or leave the option out", (option,))

    def or_recorded(self, recorded: Mapping[str, str | None]) -> "Models":
        """The recorded models where neither a pair nor a target is given, except for what is given."""
        if self.pair is not None or self.target is not None:
            return self
        return Models(**{name: given or recorded.get(name) for name, given in asdict(self).items()})

    def option_of(self, role: str) -> str:
        """The option that names the target or the draft, without dashes."""
        return "pair" if getattr(self, role) is None else role

    def resolve(self, resolver: "Resolver", role: str) -> "Path | ModelFile | None":
        """The target, or the draft if one is named: --draft none names none."""
        if role == "draft" and self.draft == NO_DRAFT:
            return None
        reference, quant = (self.target, self.quant) if role == "target" else (self.draft, self.draft_quant)
        as_draft = role == "draft"
        if reference is None:
            pair = self.chosen_pair(resolver.catalogue)
            if pair is None:
                return None
            reference = str(getattr(pair, role))
            if pair.is_one_file and not self.draft_quant:
                quant, as_draft = self.quant, False
            if quant:  # instead of the recommended one
                reference = reference.partition(":")[0]
        try:
            return resolver.resolve(reference, quant, as_draft=as_draft)
        except SpecggufError as error:
            of_quant = quant is not None and isinstance(error, UnknownQuantError)
            error.options = ("quant" if role == "target" else "draft-quant",) if of_quant else (self.option_of(role),)
            raise

    def chosen_pair(self, catalogue: "Catalogue") -> "Pair | None":
        """The pair that is named, or the default pair; None for a target of the user's own."""
        is_prompt = self.pair is not None and " " in self.pair.strip()
        if self.target is None:
            try:
                with about("pair"):
                    return catalogue.pair(self.pair)
            except SpecggufError as error:
                error.hint = PAIR_HINT if is_prompt else error.hint
                raise
        if self.pair is not None:
            raise UsageError("--pair and --target exclude each other", PAIR_HINT if is_prompt else "give one of them")
        return None


Offline = Annotated[
    bool,
    typer.Option(
        "--offline/--no-offline",
        show_default=False,
        envvar="HF_HUB_OFFLINE",
        help="Use only what is on this machine, no network.",
    ),
]
