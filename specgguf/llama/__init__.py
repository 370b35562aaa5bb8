"""llama.cpp behind one seam: its low-level C interface, with every return code checked.

Nothing outside this package imports `llama_cpp`.
"""
