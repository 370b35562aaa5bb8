"""Local requantization, in its own process: llama.cpp cannot be interrupted there, and may abort."""

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from llama_cpp import llama_cpp as lib

from specgguf.errors import ModelError
from specgguf.llama import library

_PREFIX = "LLAMA_FTYPE_MOSTLY_"
_NEED_MATRIX = {"IQ1_M", "IQ1_S", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ2_M", "IQ3_XS", "IQ3_XXS", "Q2_K_S"}
_READ_ONLY = {"NVFP4"}
"""llama.cpp can read such files, but not make them."""
_TENSOR = re.compile(r"\[ *(\d+)/ *(\d+)\]")


def known_quants() -> list[str]:
    """Names of the quantizations that llama.cpp can make without an importance matrix, though not of every model."""
    names = (name.removeprefix(_PREFIX) for name in vars(lib) if name.startswith(_PREFIX))
    return sorted(set(names) - _NEED_MATRIX - _READ_ONLY)


def quantize(
    source: Path, destination: Path, quant: str, same_output_type: bool, on_progress: Callable[[int, int], object]
) -> None:
    """Write `source` requantized to `quant` (Q2_K, Q4_0, ...) to `destination`.

    The source may be quantized already. That is good enough for a draft, whose weights change the speed but never the
    text. With `same_output_type` the output tensor gets the type `quant` too. `on_progress` gets the number of the
    current tensor, and how many there are. Raises ModelError if llama.cpp fails.
    """
    command = [
        sys.executable,
        "-P",
        "-m",
        __name__,
        str(source),
        str(destination),
        quant,
        *["same_output_type"] * same_output_type,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            for line in child.stdout or ():
                done, total = map(int, line.split())
                on_progress(done, total)
            reason = child.stderr.read().strip().rpartition("\n")[2] if child.stderr else ""
        except BaseException:
            child.kill()
            destination.unlink(missing_ok=True)
            raise
    if child.returncode:
        destination.unlink(missing_ok=True)
        raise ModelError(
            f"llama.cpp could not quantize {source} to {quant}: {reason or f'it ended with {child.returncode}'}",
            "is the file intact, and is there space on the disk? not every model can have every type",
        )


def _main(source: str, destination: str, quant: str, *same_output_type: str) -> int:
    """Runs in the process: writes a line to stdout for each tensor, and the reason of a failure to stderr."""

    def show(line: str) -> None:
        if found := _TENSOR.match(line):
            print(*found.groups(), flush=True)

    library.log_to(show)
    library.on_abort(lambda reason: print(reason, file=sys.stderr, flush=True))
    params = lib.llama_model_quantize_default_params()
    params.ftype = getattr(lib, _PREFIX + quant)
    params.allow_requantize = True
    if same_output_type:
        params.output_tensor_type = getattr(lib, f"GGML_TYPE_{quant}")
    params.nthread = library.num_physical_cores()
    failed = lib.llama_model_quantize(os.fsencode(source), os.fsencode(destination), ctypes.byref(params))
    if failed:
        print(library.take_errors(), file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
