"""Speculative decoding for GGUF draft/target pairs. Importing this package loads neither llama.cpp nor numpy."""

from specgguf.errors import SpecggufError

__all__ = ["SpecggufError"]
