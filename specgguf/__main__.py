"""The program's entry point, also as `python -m specgguf`."""

try:
    import signal
    import sys
    from typing import NoReturn

    from specgguf.errors import INTERRUPTED, TERMINATED
except KeyboardInterrupt:  # before there is an INTERRUPTED
    raise SystemExit(130) from None


def main() -> NoReturn:
    """Import the program and run it; Ctrl-C is no error while it is still being imported.

    SIGTERM raises SystemExit where Ctrl-C raises KeyboardInterrupt: what is there is written, what is open is closed.
    """
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
        from specgguf.cli.app import main as run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
