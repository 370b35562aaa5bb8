"""The shared library as a whole: its log, its devices, the processor it runs on."""

import ctypes
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from llama_cpp import llama_cpp as lib

_DEBUG, _ERROR, _CONTINUE = 1, 4, 5

_sink: Callable[[str], object] | None = None
_errors: list[str] = []


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _: object) -> None:
    # An exception cannot leave a ctypes callback; a log line that cannot be written is not worth one.
    try:
        line = text.decode("utf-8", "replace")
        if level == _ERROR:
            _errors.append(line.strip())
        if _sink is not None and level != _DEBUG:
            _sink(line)
    except Exception:
        return


lib.llama_log_set(_on_log, ctypes.c_void_p(None))
lib.llama_backend_init()


def log_to(sink: Callable[[str], object] | None) -> None:
    """Hand llama.cpp's log lines to `sink`; None, the state at the start, drops them."""
    global _sink  # noqa: PLW0603
    _sink = sink


def take_errors() -> str:
    """What llama.cpp logged as errors since the last call, most telling line first."""
    errors, _errors[:] = _errors[:], []
    return errors[0] if errors else "no reason given"


def gpu_available() -> bool:
    """Whether this build can place layers on a GPU."""
    return bool(lib.llama_supports_gpu_offload())


def version() -> str:
    """Version of llama.cpp."""
    return str(lib.llama_version().decode())


@functools.cache
def num_physical_cores() -> int:
    """Physical cores this process may use: hyper-threads of one core count once, other processes' cores not.

    On Apple silicon the performance cores only. llama.cpp gains nothing from a second thread per core.
    """
    if sys.platform == "darwin":
        names = ("hw.perflevel0.physicalcpu", "hw.physicalcpu")
        counts = [subprocess.run(["sysctl", "-n", name], capture_output=True, check=False) for name in names]
        return next((int(c.stdout) for c in counts if c.stdout.strip().isdigit()), os.cpu_count() or 1)
    if sys.platform != "linux":
        return os.cpu_count() or 1
    cores = {_siblings(cpu) for cpu in os.sched_getaffinity(0)}
    return max(1, min(len(cores), _cgroup_limit()))


def _siblings(cpu: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return path.read_text() if path.exists() else str(cpu)


def _cgroup_limit() -> int:
    """Whole processors a container may use (cgroup v2), without bound if it has no quota."""
    path = Path("/sys/fs/cgroup/cpu.max")
    quota, _, period = path.read_text().partition(" ") if path.exists() else ("max", "", "")
    return sys.maxsize if quota == "max" else max(1, int(quota) // int(period))
