"""What the cells of a KV cache take of the memory there is."""

import ctypes

import psutil
from llama_cpp import llama_cpp as lib

from specgguf.llama.context import CACHE_TYPES
from specgguf.llama.library import ggml, gpu_available
from specgguf.llama.model import Model


def cell_bytes(model: Model, cache_type_k: str, cache_type_v: str) -> int:
    """Bytes of a token's cells in all layers, at most: layers without attention have none, some share theirs."""
    pointer, header = model.pointer, model.header.gguf
    architecture = header.text("general.architecture")
    heads, usual = int(lib.llama_model_n_head_kv(pointer)), int(lib.llama_model_n_embd(pointer))
    usual //= max(1, int(lib.llama_model_n_head(pointer)))
    sizes = [header.metadata.get(f"{architecture}.attention.{part}_length") for part in ("key", "value")]
    widths = [heads * (size if isinstance(size, int) else usual) for size in sizes]
    row_size = ggml.ggml_row_size
    row_size.argtypes, row_size.restype = (ctypes.c_int, ctypes.c_int64), ctypes.c_size_t
    types = zip((cache_type_k, cache_type_v), widths, strict=True)
    return int(lib.llama_model_n_layer(pointer)) * sum(int(row_size(CACHE_TYPES[name], width)) for name, width in types)


def free_bytes(n_gpu_layers: int) -> int:
    """Bytes free where cells are kept: on the GPUs if there are layers of the model, else in main memory."""
    if not n_gpu_layers or not gpu_available():
        return int(psutil.virtual_memory().available)
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    total = 0
    for number in range(ggml.ggml_backend_dev_count()):
        device = ctypes.c_void_p(ggml.ggml_backend_dev_get(number))
        if ggml.ggml_backend_dev_type(device) == _GPU:
            free, size = ctypes.c_size_t(), ctypes.c_size_t()
            ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(size))
            total += free.value
    return total


_GPU = 1
"""ggml-backend.h's GGML_BACKEND_DEVICE_TYPE_GPU."""
