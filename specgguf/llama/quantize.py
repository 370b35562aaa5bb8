"""Local requantization."""

import ctypes
import os
from pathlib import Path

from llama_cpp import llama_cpp as lib

from specgguf.errors import ModelError
from specgguf.llama.interrupt import interruptible
from specgguf.llama.library import num_physical_cores, take_errors

_PREFIX = "LLAMA_FTYPE_MOSTLY_"


def quantize(source: Path, destination: Path, quant: str) -> None:
    """Write `source` requantized to `quant` (Q2_K, Q4_0, ...) to `destination`.

    Already quantized tensors are accepted: fit for a draft, whose weights change speed and never text.
    Raises ModelError for an unknown quantization or if llama.cpp fails.
    """
    code = getattr(lib, _PREFIX + quant.upper(), None)
    if code is None:
        known = ", ".join(sorted(name.removeprefix(_PREFIX) for name in vars(lib) if name.startswith(_PREFIX)))
        raise ModelError(f"unknown quantization {quant}", f"llama.cpp knows {known}")
    params = lib.llama_model_quantize_default_params()
    params.ftype = code
    params.allow_requantize = True
    params.nthread = num_physical_cores()
    take_errors()
    with interruptible():
        failed = lib.llama_model_quantize(os.fsencode(source), os.fsencode(destination), ctypes.byref(params))
    if failed:
        raise ModelError(
            f"llama.cpp could not quantize {source} to {quant}: {take_errors()}",
            "is there room on the disk, and is the file whole?",
        )
