"""What a context computes on its way to the logits: hidden states of layers, by functions that llama.cpp keeps in C++.

They are found by their plain names, should they become C one day, or by those that C++ compilers give them.
"""

import ctypes
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from specgguf.errors import ModelError
from specgguf.speculative.context import NEXTN, Hidden

_FLOATS = ctypes.POINTER(ctypes.c_float)
_NAMES = {
    "llama_set_embeddings_layer_inp": ("P13llama_contextjb", [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool], None),
    "llama_get_embeddings_layer_inp": ("P13llama_contextj", [ctypes.c_void_p, ctypes.c_uint32], _FLOATS),
    "llama_set_embeddings_nextn": ("P13llama_contextbb", [ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool], None),
    "llama_get_embeddings_nextn": ("P13llama_context", [ctypes.c_void_p], _FLOATS),
    "llama_set_nextn_layer_offset": ("P13llama_contexti", [ctypes.c_void_p, ctypes.c_int32], None),
}
"""What C++ adds to the name; types of the arguments and of the result."""


def function(name: str) -> Any:  # noqa: ANN401 (a ctypes function)
    """One of these; raises ModelError if this build of llama.cpp does not have it."""
    suffix, arguments, result = _NAMES[name]
    for symbol in (name, f"_Z{len(name)}{name}{suffix}"):
        found = getattr(lib._lib, symbol, None)
        if found is not None:
            found.argtypes, found.restype = arguments, result
            return found
    raise ModelError(
        f"this build of llama.cpp cannot draft with heads: it has no {name}", "use a draft model, or --draft none"
    )


def switch_on(context: Any, tap: int) -> None:  # noqa: ANN401 (a ctypes pointer)
    """Have the context keep a layer's hidden states of all tokens of a batch."""
    if tap == NEXTN:
        function("llama_set_embeddings_nextn")(context, True, False)
    else:
        function("llama_set_embeddings_layer_inp")(context, tap, True)


def hidden_rows(context: Any, tap: int, count: int, width: int) -> Hidden:  # noqa: ANN401 (a ctypes pointer)
    """Those of the last batch, shape (count, width): a view."""
    if tap == NEXTN:
        pointer = function("llama_get_embeddings_nextn")(context)
    else:
        pointer = function("llama_get_embeddings_layer_inp")(context, tap)
    if not pointer:
        raise ModelError("llama.cpp gave no hidden states", "this is a bug: report it")
    return np.ctypeslib.as_array(pointer, (count, width))
