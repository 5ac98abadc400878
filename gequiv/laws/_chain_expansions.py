"""Newton's method on the curve of a noisy Gaussian chain, about the edges of its support, in extended precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gequiv._checks import ComplexArray
from gequiv.laws import _polynomials as poly
from gequiv.laws._chain_algebra import ChainAlgebra
from gequiv.laws.multiprecision import multiprecision

EPSILON = float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True)
class Solutions:
    """Solutions of z(t) = z at many points.

    Attributes
    ----------
    t : the curve's parameter.
    y : zG - 1.
    ratio : t/P = (1+y)(1+cy)/z.
    step : size of the last Newton step, relative to t - t_e.
    physical : whether t passes the sheet test, for z in the upper half-plane or inside the support.
    error : estimated rounding error of y, absolute.
    edge, delta : the expansion used, and where in it t lies.
    """

    t: ComplexArray
    y: ComplexArray
    ratio: ComplexArray
    step: np.ndarray
    physical: np.ndarray
    error: np.ndarray
    edge: np.ndarray
    delta: Any

    def take(self, index: np.ndarray) -> Solutions:
        """The chosen ones, as a copy."""
        return Solutions(**{name: value[index] for name, value in vars(self).items()})

    def put(self, index: np.ndarray, others: Solutions) -> None:
        """Overwrite the chosen ones."""
        for name, value in vars(self).items():
            value[index] = getattr(others, name)


class ChainExpansions:
    """The curve in delta = (t - t_e)/|t_e| about each edge e.

    Near an edge z - z_e = delta^2 q/(tP) is free of cancellation; farther away the product (1+y)(1+cy)P^2 - z tP is.
    Linear factors 1 + wt are taken as (1 + w t_e) + w |t_e| delta, which keeps their digits next to the curve's poles.

    Parameters
    ----------
    algebra : the curve.
    """

    def __init__(self, algebra: ChainAlgebra) -> None:
        self.algebra = algebra
        quotients, bottoms, constants, slopes = [], [], [], []
        weights = [*algebra.weights, algebra.share, algebra.c * algebra.share]
        for t, value in zip(algebra.points, algebra.values, strict=True):
            near = [poly.shifted(factor, t, abs(t)) for factor in algebra.factors]
            top = poly.multiply(near[0], near[1])
            quotients.append(poly.to_extended(poly.subtract(top, poly.scaled(near[2], value))[2:]))
            bottoms.append(poly.to_floats(near[2]))
            constants.append(poly.to_extended([1 + w * t for w in weights]))
            slopes.append(poly.to_extended([w * abs(t) for w in weights]))
        # one row per edge; extended precision here, double precision for the many steps before the last
        self._quotients, self._constants, self._slopes = np.array(quotients), np.array(constants), np.array(slopes)
        self._coarse_constants, self._coarse_slopes = (v.astype(np.float64) for v in (self._constants, self._slopes))
        self.quotients, self.bottoms = self._quotients.astype(np.float64), np.array(bottoms)
        self.centres = poly.to_extended(algebra.points)
        self.locations = poly.to_extended(algebra.values)
        self._share, self._rest, self._c = poly.to_extended([algebra.share, algebra.rest, algebra.c])

    def nearest(self, t: ComplexArray) -> np.ndarray:
        """Index of the edge whose t_e is relatively nearest."""
        centres = self.centres.astype(np.float64)
        result: np.ndarray = np.argmin(np.abs(t[..., None] / centres - 1), axis=-1)
        return result

    def refine(self, edge: np.ndarray, offset: Any, delta: Any, *, steps: int, trust: float) -> Solutions:
        """Newton steps for z(t) = z_e + offset from delta; a step above `trust` times delta spoils the point (NaN).

        Parameters
        ----------
        edge : (m,) indices; offset, delta : (m,) extended precision, real or complex.
        """
        centre, share, rest, c = self.centres[edge], self._share, self._rest, self._c
        length = np.abs(centre)
        z = self.locations[edge] + offset
        quotients = self._quotients[edge].T
        with np.errstate(all="ignore"):  # what is not finite afterwards is refused by the caller
            for _ in range(steps):
                t = centre + length * delta
                p, dp = self._chain(edge, delta)
                excess = (share * p + rest) * t  # yP
                slope_of_excess = (share * p + rest) * length + share * dp * t
                a, b, d = p + excess, p + c * excess, t * p
                da, db, dd = dp + slope_of_excess, dp + c * slope_of_excess, length * p + t * dp
                q, dq = poly.horner_with_derivative(quotients, delta)
                rounding, local_rounding = self._rounding(edge, delta, t, p, a, b)
                product = rounding < local_rounding
                residual = np.where(product, a * b - z * d, delta**2 * q - offset * d)
                slope = np.where(product, da * b + a * db - z * dd, 2 * delta * q + delta**2 * dq - offset * dd)
                change = residual / slope
                size = np.abs(delta.astype(np.complex128))
                step = np.abs(change.astype(np.complex128)) / size
                delta = np.where(step < trust, delta - change, np.nan)
            t = centre + length * delta
            p, dp = self._chain(edge, delta)
            ratio = t / p
            y = share * t + rest * ratio
            y_slope = ((share + rest / p) * length - rest * ratio * dp / p).astype(np.complex128)
            error = EPSILON * np.minimum(rounding, local_rounding) * np.abs(y_slope / slope.astype(np.complex128))
            physical = self._physical(edge, delta, t, y)
        return Solutions(
            t=t.astype(np.complex128),
            y=y.astype(np.complex128),
            ratio=ratio.astype(np.complex128),
            step=step,
            physical=physical,
            error=error,
            edge=edge,
            delta=delta,
        )

    def local_roots(self, edge: np.ndarray, offset: ComplexArray) -> ComplexArray:
        """All delta with z = z_e + offset, (m, degree), those next to the edge to full relative accuracy."""
        quotient, bottom = self.quotients[edge], self.bottoms[edge]
        degree = quotient.shape[1] + 1
        coefficients = np.zeros((len(edge), degree + 1), dtype=np.complex128)
        coefficients[:, 2:] = quotient
        coefficients[:, : bottom.shape[1]] -= offset[:, None] * bottom
        return inverse_companion_roots(coefficients)

    def exactly(self, solutions: Solutions, which: np.ndarray, offset: Any) -> None:
        """Solve the chosen points anew with all digits, in place: where the others do not suffice."""
        ctx, algebra = multiprecision(), self.algebra
        for k in which:
            shift = ctx.mpc(poly.from_extended(offset[k].real), poly.from_extended(offset[k].imag))
            t, y = algebra.refine(algebra.values[int(solutions.edge[k])] + shift, complex(solutions.t[k]))
            solutions.t[k], solutions.y[k] = complex(t), complex(y)
            solutions.ratio[k] = complex((y - algebra.share * t) / algebra.rest)

    def _chain(self, edge: np.ndarray, delta: Any) -> tuple[Any, Any]:
        """P and dP/ddelta from the linear factors."""
        value, slope = np.ones_like(delta), np.zeros_like(delta)
        for k in range(len(self.algebra.weights)):
            factor_slope = self._slopes[edge, k]
            factor = self._constants[edge, k] + factor_slope * delta
            slope = slope * factor + value * factor_slope
            value = value * factor
        return value, slope

    def _rounding(self, edge: np.ndarray, delta: Any, t: Any, p: Any, a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
        """Size of what is rounded in the product form and in the local form, in units of the precision."""
        delta, t, p, a, b = (value.astype(np.complex128) for value in (delta, t, p, a, b))
        size, loss = np.abs(delta), np.ones(delta.shape)
        for k in range(len(self.algebra.weights)):
            constant, factor_slope = self._coarse_constants[edge, k], self._coarse_slopes[edge, k]
            loss += (np.abs(constant) + np.abs(factor_slope) * size) / np.abs(constant + factor_slope * delta)
        share, rest, c = float(self._share), float(self._rest), float(self._c)
        big = np.abs(p) * (1 + share * np.abs(t)) + rest * np.abs(t)
        product = loss * big * (np.abs(b) + c * np.abs(a))
        local = size**2 * poly.horner(np.abs(self.quotients[edge].T), size)
        return product, local

    def _physical(self, edge: np.ndarray, delta: Any, t: Any, y: Any) -> np.ndarray:
        factors = (
            self._constants[edge, k] + self._slopes[edge, k] * delta for k in range(len(self.algebra.weights) + 2)
        )
        return on_sheet(t, factors, y)


def on_sheet(t: Any, factors: Any, y: Any) -> np.ndarray:
    """The sheet test of `gequiv.laws.chain`: t solves for some z in the upper half-plane, or inside the support.

    Parameters
    ----------
    t : the parameter; factors : 1 + t rho/c_i for all dimensions, 1 + rho t and 1 + c rho t included; y : zG - 1.
    """
    angle = -np.angle(t.astype(np.complex128))
    image = 1 / t
    for factor in factors:
        angle = angle + np.angle(factor.astype(np.complex128))
        image = image * factor
    # the image has the argument modulo 2 pi to all its digits, which are needed where little noise leaves it almost
    # real; the sum of angles only tells the turn
    turn = (angle > -0.5 * np.pi) & (angle < 1.5 * np.pi)
    result: np.ndarray = turn & (image.imag > 0) & (t.imag < 0) & (y.imag < 0)
    return result


def inverse_companion_roots(coefficients: ComplexArray) -> ComplexArray:
    """Roots of polynomials, (m, degree + 1) lowest degree first, by the companion matrix in 1/root.

    Small roots come out to full relative accuracy, and vanishing leading coefficients do no harm: roots at infinity, or
    nearly so, are given as inf.
    """
    degree = coefficients.shape[1] - 1
    companion = np.zeros((len(coefficients), degree, degree), dtype=np.complex128)
    companion[:, 0, :] = -coefficients[:, 1:] / coefficients[:, :1]
    companion[:, np.arange(1, degree), np.arange(degree - 1)] = 1
    inverse = np.linalg.eigvals(companion)
    tiny = np.abs(inverse) < 1e-300
    roots: ComplexArray = np.where(tiny, np.inf, 1 / np.where(tiny, 1, inverse))
    return roots
