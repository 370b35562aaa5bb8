"""llama.cpp's shared library as a whole: its log, its failures, its devices, and the processor it runs on."""

import ctypes
import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from llama_cpp import llama_cpp as lib

_DEBUG, _ERROR, _CONTINUE = 1, 4, 5


def _loadggml() -> ctypes.CDLL:
    """ggml, the library that llama.cpp is built on. It knows the devices; llama_cpp has no public name for it."""
    folder = Path(os.environ.get("LLAMA_CPP_LIB_PATH") or Path(lib.__file__).with_name("lib"))
    names = {"darwin": ("libggml.so", "libggml.dylib"), "win32": ("ggml.dll", "libggml.dll")}
    paths = [folder / name for name in names.get(sys.platform, ("libggml.so",))]
    return ctypes.CDLL(str(next((path for path in paths if path.exists()), paths[0])))


ggml = _loadggml()

_sink: Callable[[str], object] | None = None
_errors: list[str] = []
_kept_alive: list[object] = []


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _: object) -> None:
    # No exception can leave a ctypes callback, and a lost log line is not worth one.
    try:
        line = text.decode("utf-8", "replace")
        if level == _ERROR and line.strip("=- \n"):  # not a ruler
            _errors.append(line.strip())
        if _sink is not None and level != _DEBUG:
            _sink(line)
    except Exception:
        return


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)  # type: ignore[untyped-decorator]
def _on_fatal(text: bytes) -> None:
    _errors.insert(
        0, text.decode("utf-8", "replace").strip().rpartition("/")[2]
    )  # without the folders of the build machine


lib.llama_log_set(_on_log, ctypes.c_void_p(None))
lib.llama_backend_init()


def log_to(sink: Callable[[str], object] | None) -> None:
    """Send llama.cpp's log lines to `sink`; None drops them, as at the start."""
    global _sink  # noqa: PLW0603
    _sink = sink


def on_abort(report: Callable[[str], object]) -> None:
    """When llama.cpp aborts the process, call `report` with the reason and exit with code 1.

    llama.cpp aborts on some damaged files that no check of ours finds, and divides by numbers from a header that may be
    0. The signal is raised in the thread that aborts or divides. That thread is inside llama.cpp, not inside Python, so
    the handler can be a Python function.
    """

    leaving = threading.Lock()

    @ctypes.CFUNCTYPE(None, ctypes.c_int)  # type: ignore[untyped-decorator]
    def leave(number: int) -> None:
        leaving.acquire()  # several threads may abort at once: the others wait here until the process ends
        try:
            report("a division by zero" if number == signal.SIGFPE else take_errors())
        finally:
            os._exit(1)

    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    ggml.ggml_set_abort_callback(_on_fatal)
    c_library = ctypes.cdll.msvcrt if os.name == "nt" else ctypes.CDLL(None)
    c_library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    for number in (signal.SIGABRT, signal.SIGFPE):
        c_library.signal(number, ctypes.cast(leave, ctypes.c_void_p))
    _kept_alive.append(leave)


def take_errors() -> str:
    """Forget the errors that llama.cpp logged since the last call, and return the most telling one."""
    errors, _errors[:] = _errors[:], []
    return errors[0] if errors else "no reason given"


def gpu_available() -> bool:
    """Whether this build of llama.cpp can put layers on a GPU."""
    return bool(lib.llama_supports_gpu_offload())


def devices() -> str:
    """One line: the devices that llama.cpp can use here, and the processor's features."""
    return f"{device_names()} ({lib.llama_print_system_info().decode().strip(' |')})"


def features() -> list[str]:
    """What llama.cpp uses of the processor, and of the backends: `AVX2`, `ARCHS = 900`."""
    found = lib.llama_print_system_info().decode().split("|")
    return [feature.strip().removesuffix(" = 1") for feature in found if feature.strip()]


def device_names() -> str:
    """One line: the devices that llama.cpp can use here."""
    for function, result in (("get", ctypes.c_void_p), ("name", ctypes.c_char_p), ("description", ctypes.c_char_p)):
        getattr(ggml, f"ggml_backend_dev_{function}").restype = result
    found = [ctypes.c_void_p(ggml.ggml_backend_dev_get(i)) for i in range(ggml.ggml_backend_dev_count())]
    return "; ".join(
        f"{ggml.ggml_backend_dev_name(device).decode()}: {ggml.ggml_backend_dev_description(device).decode()}"
        for device in found
    )


def backends() -> list[str]:
    """The backends in this build of llama.cpp: CPU, CUDA, Metal, ..."""
    ggml.ggml_backend_reg_get.restype = ctypes.c_void_p
    ggml.ggml_backend_reg_name.restype = ctypes.c_char_p
    found = [ctypes.c_void_p(ggml.ggml_backend_reg_get(i)) for i in range(ggml.ggml_backend_reg_count())]
    return [ggml.ggml_backend_reg_name(backend).decode() for backend in found]


def version() -> str:
    """llama.cpp's version."""
    return str(lib.llama_version().decode())


def commit() -> str:
    """The commit that llama.cpp was built from."""
    ggml.ggml_commit.restype = ctypes.c_char_p
    return str(ggml.ggml_commit().decode())


@functools.cache
def num_physical_cores() -> int:
    """How many physical cores this process may use; on Apple silicon, performance cores.

    llama.cpp gains nothing from a second thread on one core.
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
    """How many whole processors a container may use (cgroup v2); sys.maxsize without a limit."""
    path = Path("/sys/fs/cgroup/cpu.max")
    quota, _, period = path.read_text().partition(" ") if path.exists() else ("max", "", "")
    return sys.maxsize if quota == "max" else max(1, int(quota) // int(period))
