"""Runs what strangers wrote, such as chat templates, within bounds of time and memory."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar

import psutil

T = TypeVar("T")

MAX_S = 10.0
"""Seconds; milliseconds are usual."""
MAX_BYTES = 2**30
_LOOK_S = 0.02


def bounded(work: Callable[[], T]) -> T:
    """The result of `work`, or what it raises; TimeoutError or MemoryError where it takes more than it may.

    It runs in a thread of its own, which can be ended between two instructions of Python.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    process, end = psutil.Process(), time.monotonic() + MAX_S
    most = process.memory_info().rss + MAX_BYTES
    with _limited_memory(process):
        thread.start()
        try:
            while not wait([future], _LOOK_S).done:
                if time.monotonic() > end:
                    raise TimeoutError
                if process.memory_info().rss > most:
                    raise MemoryError
        except BaseException:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
            raise
    return future.result()


@contextmanager
def _limited_memory(process: psutil.Process) -> Iterator[None]:
    """Where the system can limit it: a single instruction, which nobody can end, gets no more memory either."""
    if not hasattr(psutil, "RLIMIT_AS"):
        yield
        return
    limits = process.rlimit(psutil.RLIMIT_AS)
    most = process.memory_info().vms + MAX_BYTES
    process.rlimit(psutil.RLIMIT_AS, (min([most, *(limit for limit in limits if limit >= 0)]), limits[1]))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_AS, limits)
