"""A law against matrices drawn from its own ensemble."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv.errors import ParameterError
from gequiv.laws.base import Law


def check(law: Law, n: Any = 1000, draws: Any = 4, rng: Any = 0) -> Any:
    r"""Draw matrices by ``law.matrix`` and compare their eigenvalues with the law.

    For the law of a free convolution the matrices are sums or products of matrices of the ingredients in general
    position, so that this checks the convolution and not only the sampling of one law.

    Parameters
    ----------
    law : the law.
    n : size of the matrices.
    draws : how many, at least 1; from 2 on there are error bars.
    rng : numpy Generator, or an int that seeds one.

    Returns
    -------
    `gequiv.Comparison`: Kolmogorov–Smirnov and Wasserstein distance, moments, with errors over draws. The distance of n
    eigenvalues of one matrix from their limit law is of order 1/n.

    Raises
    ------
    ParameterError : an argument is of the wrong kind or range.

    Examples
    --------
    >>> from gequiv import laws
    >>> check(laws.Semicircle() + laws.Semicircle(), n=200, draws=2).ks < 0.02
    True
    """
    if not isinstance(law, Law):
        raise ParameterError(f"law must be a law, such as gequiv.laws.MarchenkoPastur(0.5); got {law!r}")
    size, count = _checks.positive_integer("n", n), _checks.positive_integer("draws", draws)
    source = _checks.generator(rng)
    spectra = [np.linalg.eigvalsh(law.matrix(size, source)) for _ in range(count)]
    # found by name: this room knows nothing of the rooms above it
    return importlib.import_module("gequiv.simulation").compare(law, spectra)
