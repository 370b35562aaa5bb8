"""The program's entry point, also as `python -m specgguf`."""

import sys
from typing import NoReturn

from specgguf.errors import INTERRUPTED


def main() -> NoReturn:
    """Import the program and run it; Ctrl-C is no error while it is still being imported."""
    try:
        from specgguf.cli.app import main as run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
