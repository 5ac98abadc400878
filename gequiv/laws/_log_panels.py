r"""A density on the positive axis stored in the logarithm of its argument: for laws that span many decades.

With :math:`u = \log x` and :math:`p(u) = x\rho(x)`, each interval is cut into panels on which p is a Chebyshev series
in a panel variable y: u itself, or :math:`\sqrt{|u - u_e|}` next to a square-root edge :math:`u_e`, where :math:`p/y`
is stored.

Below the lowest point :math:`u_0` the distribution function is continued by
:math:`F(u) = F_0 (1 + c\,(u_0 - u))^{-1/(cL)}`, which has the value, the density :math:`F_0/L` and the slope of the
density of the stored part at :math:`u_0`: a power of x for c = 0, :math:`1/\log(1/x)` for c = 1/L.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gequiv._checks import Array
from gequiv.laws._edge_adapted import chebyshev_nodes, values_to_coefficients

ORDER = 12
_LARGEST_LOG = 709.0


@dataclass(frozen=True)
class Panel:
    """u between low and high; edge is 0 for none, 1 if the lower end is a square-root edge, -1 if the upper one is."""

    low: float
    high: float
    edge: int = 0

    @property
    def reach(self) -> float:
        """Range [0, reach] of the edge variable, or the length."""
        return math.sqrt(self.high - self.low) if self.edge else self.high - self.low

    def locate(self, s: Array) -> Array:
        """u at s in [-1, 1]."""
        y = 0.5 * (s + 1) * self.reach
        if self.edge == 0:
            return np.asarray(self.low + y)
        return np.asarray(self.low + y**2 if self.edge > 0 else self.high - y**2)

    def factor(self, s: Array) -> Array:
        """p over what is stored: the edge variable, or one."""
        return np.asarray(0.5 * (s + 1) * self.reach if self.edge else np.ones_like(s))

    def place(self, u: Array) -> Array:
        """s of points on the panel."""
        if self.edge == 0:
            y = u - self.low
        else:
            y = np.sqrt(np.maximum(u - self.low if self.edge > 0 else self.high - u, 0.0))
        return np.asarray(2 * y / self.reach - 1)

    def halves(self) -> tuple[Panel, Panel]:
        """The panel cut in two, in its own variable; only the part next to the edge keeps it."""
        middle = float(self.locate(np.zeros(1))[0])
        if self.edge > 0:
            return Panel(self.low, middle, 1), Panel(middle, self.high)
        if self.edge < 0:
            return Panel(self.low, middle), Panel(middle, self.high, -1)
        return Panel(self.low, middle), Panel(middle, self.high)


NODES = chebyshev_nodes(ORDER)
_COEFFICIENTS = values_to_coefficients(ORDER)


def series(values: Array) -> Array:
    """Chebyshev coefficients, (..., ORDER), of values at the nodes."""
    return np.asarray(values @ _COEFFICIENTS.T)


def interpolate(s: Array, values: NDArray[Any]) -> NDArray[Any]:
    """Values at s from values at the nodes: (len(s), ORDER) applied to the first axis of values."""
    return np.asarray((np.polynomial.chebyshev.chebvander(s, ORDER - 1) @ _COEFFICIENTS) @ values)


class LogPanels:
    """The stored density.

    Parameters
    ----------
    panels : ascending in u; gaps between them carry no mass.
    values : p/factor at the nodes of each panel, shape (panels, ORDER).
    below : F_0, the mass below the lowest panel.
    """

    def __init__(self, panels: list[Panel], values: Array, below: float) -> None:
        self.panels, self._below = panels, below
        reach = np.array([panel.reach for panel in panels])
        self._low = np.array([panel.low for panel in panels])
        self._high = np.array([panel.high for panel in panels])
        self._edge = np.array([panel.edge for panel in panels])
        self._reach = reach
        self._density = series(values)
        factors = np.array([panel.factor(NODES) for panel in panels])
        # dF/ds: p du/ds, du/ds = reach/2, or 2 y dy/ds next to an edge
        slope = values * np.where(self._edge[:, None] != 0, 2 * factors**2, 1.0) * (0.5 * reach)[:, None]
        with np.errstate(over="ignore"):
            points = np.exp(np.array([panel.locate(NODES) for panel in panels]))
        self._mass, masses = self._integrate(slope)
        self._mean, means = self._integrate(slope * points)
        self._mass[:, 0] += below + np.concatenate([[0.0], np.cumsum(masses)[:-1]])
        self._length, self._curve, below_mean = 1.0, 0.0, 0.0
        if below > 0:
            u, p = self._low[0], float(self._at(np.array([0]), self._start(0))[0])
            self._length = below / p
            curve = self._log_slope() - 1 / self._length
            self._curve = curve if curve * self._length >= 1e-6 else 0.0
            below_mean = math.exp(u) * p / (1 + 1 / self._length + self._curve)
        self._mean[:, 0] += below_mean + np.concatenate([[0.0], np.cumsum(means)[:-1]])
        self.total_mass, self.total_mean = below + float(masses.sum()), below_mean + float(means.sum())
        self._ends = below + np.cumsum(masses)
        self._mean_ends = below_mean + np.cumsum(means)

    def _start(self, panel: int) -> Array:
        return np.array([1.0 if self._edge[panel] < 0 else -1.0])

    def _log_slope(self) -> float:
        """dp/du over p at the lowest point."""
        step = 1e-3 * (self._high[0] - self._low[0])
        near = self.density_in_log(np.array([self._low[0] + step, self._low[0] + 2 * step]))
        p0 = float(self._at(np.array([0]), self._start(0))[0])
        return float((4 * near[0] - 3 * p0 - near[1]) / (2 * step) / p0)

    def _integrate(self, slope: Array) -> tuple[Array, Array]:
        """Series of the integral of dF/ds from each panel's lower end in u, and its value at the upper end."""
        integral = np.polynomial.chebyshev.chebint(series(slope), axis=1)
        falling = self._edge < 0  # s runs against u
        at_low = np.polynomial.chebyshev.chebval(np.where(falling, 1.0, -1.0), integral.T, tensor=False)
        at_high = np.polynomial.chebyshev.chebval(np.where(falling, -1.0, 1.0), integral.T, tensor=False)
        sign = np.where(falling, -1.0, 1.0)
        integral *= sign[:, None]
        integral[:, 0] -= sign * at_low
        return np.asarray(integral), sign * (at_high - at_low)

    # -- evaluation ---------------------------------------------------------------------------------

    def _place(self, u: Array) -> tuple[np.ndarray, Array, np.ndarray]:
        """Panel, s, and whether u lies on it."""
        panel = np.clip(np.searchsorted(self._low, u, side="right") - 1, 0, len(self._low) - 1)
        low, high, edge, reach = self._low[panel], self._high[panel], self._edge[panel], self._reach[panel]
        inside = (u >= low) & (u <= high)
        at = np.clip(u, low, high)
        y = np.where(edge > 0, np.sqrt(at - low), np.where(edge < 0, np.sqrt(high - at), at - low))
        return panel, np.clip(2 * y / reach - 1, -1.0, 1.0), inside

    def _at(self, panel: np.ndarray, s: Array) -> Array:
        factor = np.where(self._edge[panel] != 0, 0.5 * (s + 1) * self._reach[panel], 1.0)
        return np.asarray(np.polynomial.chebyshev.chebval(s, self._density[panel].T, tensor=False) * factor)

    def density_in_log(self, u: Array) -> Array:
        """p(u)."""
        panel, s, inside = self._place(u)
        value = np.where(inside, np.maximum(self._at(panel, s), 0.0), 0.0)
        lower = u < self._low[0]
        if self._below > 0 and lower.any():
            value[lower] = self._below / self._length * self._fall(u[lower], 1.0)
        return value

    def _fall(self, u: Array, extra: float) -> Array:
        """(1 + c(u_0 - u))^{-1/(cL) - extra}, or its limit for c = 0."""
        distance = self._low[0] - u
        if self._curve == 0:
            return np.asarray(np.exp(-distance / self._length))
        power = -1 / (self._curve * self._length) - extra
        return np.asarray((1 + self._curve * distance) ** power)

    def mass(self, u: Array) -> Array:
        """F at e^u."""
        panel, s, _ = self._place(u)
        value = np.polynomial.chebyshev.chebval(s, self._mass[panel].T, tensor=False)
        value = np.where(u > self._high[panel], self._ends[panel], value)
        lower = u < self._low[0]
        if lower.any():
            value[lower] = self._below * self._fall(u[lower], 0.0)
        return np.asarray(value)

    def partial_mean(self, u: Array) -> Array:
        """Integral of x over (0, e^u]."""
        panel, s, _ = self._place(u)
        value = np.polynomial.chebyshev.chebval(s, self._mean[panel].T, tensor=False)
        value = np.where(u > self._high[panel], self._mean_ends[panel], value)
        lower = u < self._low[0]
        if lower.any():  # as for the power of x that the density is there
            rate = (1 / self._length + self._curve) / (1 + self._curve * (self._low[0] - u[lower]))
            value[lower] = np.exp(u[lower]) * self.density_in_log(u[lower]) / (1 + rate)
        return np.asarray(value)

    def quantile(self, mass: Array) -> Array:
        """x with F(x) = mass, for 0 < mass <= total mass."""
        mass = np.minimum(mass, self.total_mass)
        panel = np.clip(np.searchsorted(self._ends, mass, side="left"), 0, len(self._ends) - 1)
        low, high = np.full(mass.shape, -1.0), np.full(mass.shape, 1.0)
        rising = self._edge[panel] >= 0
        for _ in range(56):
            middle = 0.5 * (low + high)
            above = (np.polynomial.chebyshev.chebval(middle, self._mass[panel].T, tensor=False) > mass) == rising
            high = np.where(above, middle, high)
            low = np.where(above, low, middle)
        y = 0.5 * (0.5 * (low + high) + 1) * self._reach[panel]
        edge = self._edge[panel]
        u = np.where(
            edge > 0, self._low[panel] + y**2, np.where(edge < 0, self._high[panel] - y**2, self._low[panel] + y)
        )
        u = np.where(mass >= self.total_mass * (1 - 4e-16), self._high[-1], u)
        lower = mass < self._below
        if lower.any():
            ratio = np.log(np.maximum(mass[lower], 1e-300) / self._below)
            if self._curve == 0:
                distance = -self._length * ratio
            else:
                with np.errstate(over="ignore"):
                    distance = np.expm1(-ratio * self._curve * self._length) / self._curve
            u[lower] = self._low[0] - distance
        return np.asarray(np.where(mass > 0, np.exp(np.maximum(u, -1e4)), 0.0))

    def moment(self, k: int) -> float:
        """Integral of x^k, k >= 1."""
        total = 0.0
        nodes, weights = np.polynomial.legendre.leggauss(ORDER + 8)
        with np.errstate(over="ignore"):
            for number, panel in enumerate(self.panels):
                u, factor = panel.locate(nodes), panel.factor(nodes)
                p = np.polynomial.chebyshev.chebval(nodes, self._density[number]) * factor
                slope = p * (2 * factor if panel.edge else 1.0) * 0.5 * panel.reach
                total += float(np.sum(weights * slope * np.exp(k * u)))
            if self._below > 0:
                total += math.exp(min(k * self._low[0], _LARGEST_LOG)) * self._below / (1 + k * self._length)
        return total
