"""llama.cpp behind one seam: its low-level C interface, with every return code checked.

Nothing outside this package imports `llama_cpp`.
"""

import os

# Read when OpenMP's library is loaded: threads that wait for each other spin for a moment only, then sleep. On a
# machine that is busy with other things, long spinning makes llama.cpp slower many times over.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
