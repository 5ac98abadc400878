"""Many small linear systems at once."""

from __future__ import annotations

import numpy as np

from gequiv._checks import ComplexArray


def solve_each(matrices: ComplexArray, right: ComplexArray) -> ComplexArray:
    """Solutions (m, k) of a batch (m, k, k) of linear systems; NaN where one of them is singular or not finite."""
    try:
        return np.asarray(np.linalg.solve(matrices, right[:, :, None])[:, :, 0], dtype=np.complex128)
    except np.linalg.LinAlgError:
        found = np.full(right.shape, complex(np.nan, np.nan))
        for k in range(len(right)):
            try:
                found[k] = np.linalg.solve(matrices[k], right[k])
            except np.linalg.LinAlgError:
                continue
    return found
