"""Test files run side by side; BLAS threads on top of that cost more than they bring."""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before the workers start, which inherit it
