r"""Free probability with laws: convolutions, powers, compressions, push-forwards; transforms; cumulants.

>>> from gequiv import free, laws
>>> law = free.additive(laws.Semicircle(variance=1), laws.MarchenkoPastur(ratio=0.5))
>>> [(round(a, 10), round(b, 10)) for a, b in law.support()]
[(-1.3214539015, 3.6657262272)]
"""

from gequiv.free.checking import check
from gequiv.free.cumulants import (
    eta_series,
    free_cumulants,
    moments,
    moments_from_rectangular,
    r_series,
    rectangular_cumulants,
    s_series,
)
from gequiv.free.operations import (
    additive,
    compression,
    inverse,
    multiplicative,
    multiplicative_power,
    power,
    rectangular,
    square,
    square_root,
)
from gequiv.free.transforms import eta_transform, r_transform, s_transform, voiculescu_transform

__all__ = [
    "additive",
    "check",
    "compression",
    "eta_series",
    "eta_transform",
    "free_cumulants",
    "inverse",
    "moments",
    "moments_from_rectangular",
    "multiplicative",
    "multiplicative_power",
    "power",
    "r_series",
    "r_transform",
    "rectangular",
    "rectangular_cumulants",
    "s_series",
    "s_transform",
    "square",
    "square_root",
    "voiculescu_transform",
]
