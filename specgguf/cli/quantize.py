"""`specgguf quantize`: make another quantization of a model on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from specgguf.cli.completion import references
from specgguf.cli.opening import open_resolver, open_store
from specgguf.cli.options.models import Offline
from specgguf.cli.terminal import output
from specgguf.errors import UsageError


def quantize(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REF", help="A GGUF file, MODEL[:QUANT], hf:owner/repo[:QUANT].", autocompletion=references
        ),
    ],
    quant: Annotated[str, typer.Argument(metavar="TYPE", help="The quantization to make: Q4_0, Q8_0, ...")],
    offline: Offline = False,
) -> None:
    """Requantize a model, fetching it first if need be, and print where the new file lies.

    From then on MODEL:TYPE means that file. A draft needs none: --draft-quant TYPE makes what it needs.
    """
    from specgguf.llama.quantize import known_quants
    from specgguf.models.files import DerivedFile, HubFile, SplitFile
    from specgguf.models.header import ModelHeader

    if quant.upper() not in known_quants():
        raise UsageError(f"unknown quantization: {quant}", f"llama.cpp makes {', '.join(known_quants())}")
    store = open_store(offline)
    resolver = open_resolver(store)
    source, model = resolver.resolve(reference), reference.partition(":")[0]
    if isinstance(resolver.catalogue.models.get(model, {}).get(quant.upper()), HubFile | SplitFile):
        raise UsageError(f"{model} is published as {quant.upper()}", f"fetch it: specgguf pull {model}:{quant.upper()}")
    if isinstance(source, DerivedFile):
        raise UsageError(f"{reference} was itself made here", f"make {quant} from {source.source.name}")
    (original,) = store.provide([source])
    if not ModelHeader.of_file(original, "source").is_full_precision:
        output.note(
            "made from quantized weights: as good as any for a draft, which changes the speed alone; a target's "
            "answers get worse with it, and no larger type brings their quality back"
        )
    derived = DerivedFile(original if isinstance(source, Path) else source, quant.upper())
    output.write("".join(f"{path}\n" for path in store.provide([derived])))
