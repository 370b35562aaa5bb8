"""Runs what takes more stack than a thread usually has."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_LEAST = 1 << 24
_PAGE = 4096


def with_stack(num_bytes: int, work: Callable[[], T]) -> T:
    """The result of `work`, or what it raises, in a thread whose stack has at least so many bytes.

    They take memory only where they are used. Raises MemoryError where there cannot be so many.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    try:
        usual = threading.stack_size(max(_LEAST, -(-num_bytes // _PAGE) * _PAGE))
        try:
            threading.Thread(target=run, daemon=True).start()
        finally:
            threading.stack_size(usual)
    except (RuntimeError, ValueError, OverflowError):
        raise MemoryError from None
    return future.result()
