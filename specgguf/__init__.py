"""Speculative decoding for GGUF draft/target pairs. Importing this package loads neither llama.cpp nor numpy."""

TYPE_CHECKING = False  # nothing is imported here: the sooner `__main__` begins, the sooner Ctrl-C is no error
if TYPE_CHECKING:
    from specgguf.errors import SpecggufError

__all__ = ["SpecggufError"]


def __getattr__(name: str) -> object:
    if name == "SpecggufError":
        from specgguf.errors import SpecggufError  # noqa: PLC0415

        return SpecggufError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
