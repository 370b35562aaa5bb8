"""`python -m specgguf`."""

from specgguf.cli.app import main

main()
