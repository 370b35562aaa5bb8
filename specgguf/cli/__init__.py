"""The command line. typer is used here only, rich in `output` only."""
