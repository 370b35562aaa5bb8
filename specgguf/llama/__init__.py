"""llama.cpp's C interface, with every return code checked. No other room imports `llama_cpp`."""

import os

# Read when OpenMP's library is loaded: threads that wait for each other spin briefly, then sleep. Long spinning makes
# llama.cpp many times slower on a machine that has other work to do.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
