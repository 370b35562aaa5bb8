"""Devices, threads and memory."""

from dataclasses import dataclass
from typing import Annotated

import typer

from specgguf.cli.options.values import num_layers
from specgguf.engine.settings import CHAT_CTX


@dataclass(frozen=True)
class Resources:
    """The options for devices, threads and memory."""

    gpu_layers: Annotated[
        int | None,
        typer.Option(
            "--gpu-layers", parser=num_layers, metavar="N|all", help="Layers of the target on the GPU; default: all."
        ),
    ] = None
    draft_gpu_layers: Annotated[
        int | None,
        typer.Option("--draft-gpu-layers", parser=num_layers, metavar="N|all", help="The same for the draft."),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option("--threads", "-t", min=1, max=512, metavar="N", help="Threads; default: the physical cores."),
    ] = None
    ctx: Annotated[
        int | None,
        typer.Option("--ctx", "-c", min=1, metavar="N", help="Context in tokens; default: what the task needs."),
    ] = None
    draft_ctx: Annotated[
        int | None,
        typer.Option(
            "--draft-ctx",
            min=64,
            metavar="N",
            help="Context of the draft; default: the target's. The draft model does not draft for longer texts.",
        ),
    ] = None
    cache_type_k: Annotated[
        str | None,
        typer.Option("--cache-type-k", metavar="TYPE", help="Cells of the key cache: f16 (default), bf16, q8_0, ..."),
    ] = None
    cache_type_v: Annotated[
        str | None, typer.Option("--cache-type-v", metavar="TYPE", help="Cells of the value cache: the same types.")
    ] = None


@dataclass(frozen=True)
class ChatResources(Resources):
    """The same for a chat."""

    ctx: Annotated[
        int | None,
        typer.Option(
            "--ctx",
            "-c",
            min=1,
            metavar="N",
            help=f"Context in tokens; default: {CHAT_CTX}, or what the model knows.",
        ),
    ] = None
