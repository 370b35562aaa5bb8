"""Ctrl-C inside llama.cpp.

Python runs a signal handler only between two of its own instructions, so a KeyboardInterrupt would wait until a C call
returns: seconds in a prefill. Worse, the first Python code to run may be llama.cpp's log callback, where an exception
is lost. So during a C call the handler only records the signal. Python's wake-up descriptor, to which its C-level
handler writes a byte at once, is a file whose first page is mapped into memory. llama.cpp's abort callback looks at
that page: it is libc's strlen, which returns 0 for a page of zeros, and needs no Python for each graph node.
"""

import contextlib
import ctypes
import mmap
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from types import FrameType

Handler = Callable[[int, FrameType | None], object]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _open_file() -> int:
    """A descriptor of an empty file without a name, in memory if the system can."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("specgguf")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


_file = _open_file()
os.ftruncate(_file, mmap.PAGESIZE)
os.set_blocking(_file, False)
_page = mmap.mmap(_file, mmap.PAGESIZE)

abort_data = ctypes.addressof(ctypes.c_char.from_buffer(_page))
"""The data for llama.cpp's abort callback."""
abort_function = (ctypes.cdll.msvcrt if os.name == "nt" else ctypes.CDLL(None)).strlen
"""llama.cpp's abort callback. It reads a `size_t` as a `bool`, which is right for fewer than 256 signals."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let a signal abort the C call inside; its handler (raising KeyboardInterrupt) runs on the way out."""
    handlers: dict[int, Handler] = {
        number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))
    }
    if not handlers or threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[tuple[int, FrameType | None]] = []

    def record(number: int, frame: FrameType | None) -> None:
        arrived.append((number, frame))

    for number in handlers:
        signal.signal(number, record)
    wakeup = signal.set_wakeup_fd(_file, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if _page[0]:
            os.lseek(_file, 0, os.SEEK_SET)
            _page[:] = bytes(mmap.PAGESIZE)
        for number, frame in arrived:
            handlers[number](number, frame)
