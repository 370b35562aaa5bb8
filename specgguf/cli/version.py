"""`specgguf --version`."""

from typing import Annotated

import typer

from specgguf.cli.terminal import output


def _show(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    output.write(f"specgguf {version('specgguf')}\n")
    from specgguf.llama import library

    output.write(
        f"llama.cpp {library.version()}, commit {library.commit()}, by llama-cpp-python {version('llama-cpp-python')}\n"
        f"backends: {', '.join(library.backends())}\n"
    )
    raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=_show, is_eager=True, help="Show the versions in use, and llama.cpp's backends."
    ),
]
