"""The rational curve of `GaussianChainPlusNoise`: edges, physical sheet, density, transform, moments.

The curve is taken in units where the law has mean one; intervals, and what `EdgeAdaptedDensity` reads, in true units. The equations and the sheet test are in the text of `gequiv.laws.chain`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError
from gequiv.laws import _polynomials as poly
from gequiv.laws._edge_adapted import edge_list
from gequiv.laws.multiprecision import multiprecision

_EXTREME = "the parameters are too extreme; move them slightly, or bring the ratios closer to one"
_NEGLIGIBLE = 1e-22
_ROWS = 4096
_DOUBT = 3e-15 / float(np.finfo(np.longdouble).eps)


class ChainCurve:
    """z(t) = (1+y)(1+cy) P/t with y = rho t + (1-rho) t/P and P = prod(1 + rho t/c_i).

    Parameters
    ----------
    inner : c_i, inner dimensions over rows.
    aspect : c, rows over columns.
    signal, noise : variances; only their ratio matters.

    Attributes
    ----------
    intervals, exponents : the support and the kind of its edges, as `EdgeAdaptedDensity` takes them.
    worst_step, margin : largest relative Newton step and smallest -Im G/|G| met so far.
    """

    precision = np.longdouble

    def __init__(self, inner: tuple[Fraction, ...], aspect: Fraction, signal: Fraction, noise: Fraction) -> None:
        ctx = multiprecision()
        mp = ctx.mpf
        strength, rest, self._c = (mp(r.numerator) / r.denominator for r in (signal, noise, aspect))
        self._scale = strength + rest
        self._share, self._rest = strength / self._scale, rest / self._scale
        # a factor whose weight rho/c_i is below this one differs from 1 by less than the last digit of a float
        inner = tuple(r for r in inner if self._share * r.denominator > _NEGLIGIBLE * r.numerator)
        self._weights = [self._share * r.denominator / r.numerator for r in inner]  # rho / c_i
        self.inner, self.aspect = inner, aspect
        self.c, self.share, self.rest = float(self._c), float(self._share), float(self._rest)
        self.weights = [float(w) for w in self._weights]

        chain = [mp(1)]
        for w in self._weights:
            chain = poly.multiply(chain, [mp(1), w])
        self._excess = poly.add(poly.multiply(chain, [mp(0), self._share]), [mp(0), self._rest])  # y P
        one_plus_y = poly.add(chain, self._excess)
        one_plus_cy = poly.add(chain, poly.scaled(self._excess, self._c))
        self._top = poly.multiply(one_plus_y, one_plus_cy)
        self._bottom = poly.multiply([mp(0), mp(1)], chain)
        self._exact_factors = (one_plus_y, one_plus_cy, self._bottom)
        self._factors = [poly.to_floats(p) for p in self._exact_factors]
        self._top_floats, self._bottom_floats = poly.to_floats(self._top), poly.to_floats(self._bottom)
        self.worst_step, self.margin = 0.0, 1.0
        self._find_edges()
        self._localise()

    # -- edges --------------------------------------------------------------------------------------

    def _find_edges(self) -> None:
        """Edges are critical values of z on the physical part of the real t-axis, where dz/dt < 0.

        The physical part: (0, t_b) right of the support; (t_a, 0) left of it, t_a the first critical point below 0; and,
        when an inner dimension is the smallest one, a pair of critical points between the first pole of z and the branch
        point of the chain's own curve bounds a gap.
        """
        roots = poly.RealRoots(self._logarithmic_slope())
        pole = -1 / max(self._weights) if self._weights else None
        right = roots.within(multiprecision().mpf(0), None)
        left = roots.within(pole, multiprecision().mpf(0))
        if not right or not left:
            raise CertificationError(f"the outer edges of the support could not be found: {_EXTREME}")
        points = [left[-1], *self._gap(roots, pole), right[0]]
        values = [poly.evaluate(self._top, t) / poly.evaluate(self._bottom, t) for t in points]
        hard = self.aspect == 1
        if hard:
            values[0] = multiprecision().mpf(0)  # (1+y)^2 has its double zero there
        if any(not a < b for a, b in zip(values, values[1:], strict=False)) or values[0] < 0:
            raise CertificationError(f"the edges {[float(v) for v in values]} are out of order: {_EXTREME}")
        self._edge_points, self._edge_values = points, values
        scaled = poly.scaled(values, self._scale)
        ends = [float(v) for v in scaled]
        self.residues = [float(v - end) for v, end in zip(scaled, ends, strict=True)]
        self.intervals = list(zip(ends[::2], ends[1::2], strict=True))
        self.exponents = [(-1 if hard and i == 0 else 1, 1) for i in range(len(self.intervals))]
        self._check_sheet()

    def _logarithmic_slope(self) -> poly.Polynomial:
        """Numerator of d log z/dt, without the factors that several inner dimensions have in common."""
        product, sums = self._simple_poles(self.inner)
        distinct = [0, *product]  # t times the product
        poles = poly.add(product, [0, *sums])
        if self.aspect == 1:  # top is a square: its root is critical, once
            root = poly.add(self._bottom[1:], self._excess)
            inner = poly.subtract(
                poly.scaled(poly.multiply(poly.derivative(root), distinct), 2), poly.multiply(root, poles)
            )
            return poly.multiply(root, inner)
        return poly.subtract(
            poly.multiply(poly.derivative(self._top), distinct), poly.multiply(self._top, poles)
        )

    def _simple_poles(self, dimensions: Iterable[Fraction]) -> tuple[poly.Polynomial, poly.Polynomial]:
        """prod (1 + w_j t) and its product with sum m_j w_j/(1 + w_j t), over distinct w_j = rho/c_j of multiplicity m_j."""
        one = multiprecision().mpf(1)
        counts = Counter(dimensions)
        weight = {d: self._share * d.denominator / d.numerator for d in counts}
        product: poly.Polynomial = [one]
        for d in counts:
            product = poly.multiply(product, [one, weight[d]])
        sums: poly.Polynomial = [0 * one]
        for d, multiplicity in counts.items():
            term: poly.Polynomial = [multiplicity * weight[d]]
            for other in counts.keys() - {d}:
                term = poly.multiply(term, [one, weight[other]])
            sums = poly.add(sums, term)
        return product, sums

    def _gap(self, roots: poly.RealRoots, pole: Any) -> list[Any]:
        """The two critical points that bound a gap, lower edge of the gap first, or none."""
        if pole is None:
            return []
        dimensions = sorted([*self.inner, Fraction(1), 1 / self.aspect])
        if dimensions[0] == dimensions[1] or dimensions[0] != min(self.inner):
            return []  # the chain has full rank, or its spectrum reaches down to 0
        mp = multiprecision().mpf
        following = -mp(dimensions[1].numerator) / dimensions[1].denominator / self._share
        # branch point of the chain's own curve, prod(1 + u/c_i)/u over all its dimensions
        product, sums = self._simple_poles(dimensions)
        branch = poly.RealRoots(poly.subtract([0, *sums], product)).within(following, pole)
        if len(branch) != 1:
            raise CertificationError(f"the chain has {len(branch)} branch points where one was expected: {_EXTREME}")
        pair = roots.within(branch[0], pole)
        if len(pair) not in (0, 2):
            raise CertificationError(f"a gap of the support has {len(pair)} ends: {_EXTREME}")
        return pair[::-1]

    def _check_sheet(self) -> None:
        """Every edge must have arg z = 0 as a sum of principal arguments, from the lower half t-plane."""
        for t, value in zip(self._edge_points, self._edge_values, strict=True):
            if value != 0 and self._arguments(t)[2] != 0:
                raise CertificationError(f"the edge at {float(value)!r} is on the wrong sheet: {_EXTREME}")

    def _arguments(self, t: Any) -> tuple[Any, Any, int]:
        """y and t/P at a real t, and arg z/pi there."""
        chain = poly.evaluate(self._bottom[1:], t)
        ratio = t / chain
        y = self._share * t + self._rest * ratio
        angle_ratio = _turn(t) - sum(_turn(1 + w * t) for w in self._weights)
        return y, ratio, _turn(1 + y) + _turn(1 + self._c * y) - angle_ratio

    def _last_digits(
        self, edge: np.ndarray, xi: Any, width: Any, eta: ComplexArray
    ) -> tuple[ComplexArray, ComplexArray]:
        """t and y after one more Newton step in extended precision (where the platform has it).

        The equation is taken as (1+y)(1+cy)P^2 = z tP or as delta^2 q = (z - z_e) tP, whichever carries less rounding.
        """
        xi = xi.astype(np.longdouble)
        delta = xi * eta
        centre, share, rest, c = self._fine_centres[edge], self._fine_share, self._fine_rest, self._fine_c
        length = np.abs(centre)
        with np.errstate(all="ignore"):  # what is not finite afterwards is refused by the caller
            t = centre + length * delta
            p, dp, loss = self._chain(edge, delta)
            excess = (share * p + rest) * t  # yP
            slope_of_excess = (share * p + rest) * length + share * dp * t
            a, b, d = p + excess, p + c * excess, t * p
            da, db, dd = dp + slope_of_excess, dp + c * slope_of_excess, length * p + t * dp
            q, dq = poly.horner_with_derivative(self._fine_quotients[edge].T, delta)
            size = np.abs(delta)
            big = np.abs(p * (1 + np.abs(share * t))) + np.abs(rest * t)
            rounding = loss * big * (np.abs(b) + c * np.abs(a))
            quotient_size = poly.horner(np.abs(self._fine_quotients[edge].T), size)
            product = rounding < size**2 * quotient_size
            offset = width * xi**2
            z = self._fine_locations[edge] + offset
            residual = np.where(product, a * b - z * d, delta**2 * q - offset * d)
            slope = np.where(product, da * b + a * db - z * dd, 2 * delta * q + delta**2 * dq - offset * dd)
            step = residual / slope
            step = np.where(np.abs(step) < 1e-8 * size, step, np.nan)
            doubt = np.where(product, rounding, size**2 * quotient_size) / np.abs(slope)  # of delta
            delta = delta - step
            t = centre + length * delta
            p, dp, _ = self._chain(edge, delta)
            y = share * t + rest * t / p
            doubt *= np.abs((share + rest / p) * length - rest * t * dp / p**2) / np.abs(y.imag)
        t, y = t.astype(np.complex128), y.astype(np.complex128)
        if np.isrealobj(width):  # on the support; elsewhere relative accuracy of the imaginary part is not asked for
            for k in np.flatnonzero((doubt > _DOUBT) & np.isfinite(t) & np.isfinite(y)):
                t[k], y[k] = self._in_multiprecision(int(edge[k]), xi[k], width[k], complex(t[k]))
        return t, y

    def _in_multiprecision(self, edge: int, xi: Any, width: Any, start: complex) -> tuple[complex, complex]:
        """t and y by Newton's method with all digits, for points where the density varies too fast for the others."""
        ctx = multiprecision()
        z = self._edge_values[edge] + poly.from_extended(width) * poly.from_extended(xi) ** 2
        t = ctx.mpc(start)
        for _ in range(6):
            chain, sums = ctx.mpf(1), ctx.mpf(0)
            for w in self._weights:
                chain = chain * (1 + w * t)
                sums = sums + w / (1 + w * t)
            ratio = t / chain  # its logarithmic derivative is 1/t - sums
            y = self._share * t + self._rest * ratio
            dy = self._share + self._rest * ratio * (1 / t - sums)
            value = (1 + y) * (1 + self._c * y) - z * ratio
            slope = dy * (1 + self._c * y) + (1 + y) * self._c * dy - z * ratio * (1 / t - sums)
            step = value / slope
            t = t - step
            if abs(step) < abs(t.imag) * ctx.mpf(10) ** -20:
                break
        return complex(t), complex(y)

    def _chain(self, edge: np.ndarray, delta: Any) -> tuple[Any, Any, Any]:
        """P, dP/ddelta and the factor by which rounding grows in P, from its linear factors about each edge."""
        value, slope, loss = np.ones_like(delta), np.zeros_like(delta), np.ones(delta.shape)
        for constant, factor_slope in zip(self._fine_constants[edge].T, self._fine_slopes[edge].T, strict=True):
            factor = constant + factor_slope * delta
            slope = slope * factor + value * factor_slope
            value = value * factor
            loss = loss + (np.abs(constant) + np.abs(factor_slope * delta)) / np.abs(factor)
        return value, slope, loss

    def masses(self) -> list[float]:
        """Mass of each interval from the closed form of the integral of G."""
        above = [self._mass_above(t) for t in self._edge_points]
        return [float(a - b) for a, b in zip(above[::2], above[1::2], strict=True)]

    def _mass_above(self, t: Any) -> Any:
        """Mass right of the edge at t: Im/pi of (1+y) log z - int log z dy, where log z is real."""
        y, ratio, _ = self._arguments(t)
        angle_ratio = _turn(t) - sum(_turn(1 + w * t) for w in self._weights)
        mass = self._rest * ratio * angle_ratio + self._share * t * _turn(t)
        mass -= (1 + y) * _turn(1 + y) + (1 + self._c * y) / self._c * _turn(1 + self._c * y)
        for w in self._weights:
            mass -= (self._share * t + self._share / w) * _turn(1 + w * t)
        return mass

    def _localise(self) -> None:
        """At each edge, top - z_e bottom = delta^2 q(delta) and bottom as polynomials in delta = (t - t_e)/|t_e|."""
        quotients, bottoms, constants, slopes = [], [], [], []
        for t, value in zip(self._edge_points, self._edge_values, strict=True):
            near = [poly.shifted(factor, t, abs(t)) for factor in self._exact_factors]
            top = poly.multiply(near[0], near[1])
            quotients.append(poly.to_extended(poly.subtract(top, poly.scaled(near[2], value))[2:]))
            bottoms.append(poly.to_floats(near[2]))
            constants.append(poly.to_extended([1 + w * t for w in self._weights]))
            slopes.append(poly.to_extended([w * abs(t) for w in self._weights]))
        # one row per edge; extended precision for the last step of Newton's method, double for those before
        self._fine_quotients = np.array(quotients)
        self._quotients, self._bottoms = self._fine_quotients.astype(np.float64), np.array(bottoms)
        self._fine_constants, self._fine_slopes = np.array(constants), np.array(slopes)  # 1 + w t = constant + slope delta
        self._fine_centres = poly.to_extended(self._edge_points)
        self._fine_share, self._fine_rest, self._fine_c = poly.to_extended([self._share, self._rest, self._c])
        self._centres = np.array([float(t) for t in self._edge_points])
        edges = edge_list(self.intervals, self.exponents)
        self._exponents = np.array([e.exponent for e in edges])
        # edges and widths in units of the mean, to extended precision
        self._fine_locations = poly.to_extended(self._edge_values)
        self._fine_widths = poly.to_extended([e.sign * e.width / self._scale for e in edges])
        self._locations = self._fine_locations.astype(np.float64)
        self._widths = self._fine_widths.astype(np.float64)

    # -- the sheet ----------------------------------------------------------------------------------

    def excess(self, t: ComplexArray) -> ComplexArray:
        """y = zG - 1 at t."""
        return self.share * t + self.rest * self.ratio(t)

    def ratio(self, t: ComplexArray) -> ComplexArray:
        """t/P(t) = (1+y)(1+cy)/z."""
        chain = np.ones_like(t)
        for w in self.weights:
            chain = chain * (1 + w * t)
        return t / chain

    def physical(self, t: ComplexArray) -> np.ndarray:
        """Whether t, a solution for a z in the upper half-plane or inside the support, is the physical one."""
        angle = -np.angle(t)
        with np.errstate(divide="ignore", invalid="ignore"):  # a root at a pole of the curve fails the test
            image = 1 / t
            for w in (*self.weights, self.share, self.c * self.share):
                factor = 1 + w * t
                angle = angle + np.angle(factor)
                image = image * factor
            # the argument is known modulo 2 pi from the image, accurately; the sum of angles only tells the turn
            good = (angle > -0.5 * np.pi) & (angle < 1.5 * np.pi) & (image.imag > 0)
            result: np.ndarray = good & (t.imag < 0) & (self.excess(t).imag < 0)
        return result

    def all_roots(self, z: ComplexArray) -> ComplexArray:
        """All solutions of z(t) = z, shape (m, degree); those at infinity, or nearly so, are given as inf."""
        degree = len(self._top_floats) - 1
        bottom = np.zeros(degree + 1)
        bottom[: len(self._bottom_floats)] = self._bottom_floats
        # in 1/t the equation is monic, for top(0) = 1 and bottom(0) = 0
        companion = np.zeros((len(z), degree, degree), dtype=np.complex128)
        companion[:, 0, :] = z[:, None] * bottom[1:] - self._top_floats[1:]
        companion[:, np.arange(1, degree), np.arange(degree - 1)] = 1
        inverse = np.linalg.eigvals(companion)
        tiny = np.abs(inverse) < 1e-300
        roots: ComplexArray = np.where(tiny, np.inf, 1 / np.where(tiny, 1, inverse))
        return roots

    # -- density ------------------------------------------------------------------------------------

    def solve(self, edge: np.ndarray, xi: Any, start: ComplexArray | None) -> tuple[Array, ComplexArray]:
        """Node solver of `EdgeAdaptedDensity`; the state is the one number t."""
        x = (self._fine_locations[edge] + self._fine_widths[edge] * xi**2).astype(np.float64)
        t = self._companion_start(edge, xi) if start is None else start[:, 0]
        t, y, fine = self._newton(edge, xi, self._fine_widths[edge], t, relative_to_imaginary=True)
        for retry in (self._companion_start, self._march):
            lost = np.flatnonzero(~fine)
            if lost.size == 0:
                break
            again = retry(edge[lost], xi[lost])
            t[lost], y[lost], fine[lost] = self._newton(
                edge[lost], xi[lost], self._fine_widths[edge[lost]], again, relative_to_imaginary=True
            )
        if not fine.all():
            where = float(x[~fine][0])
            raise CertificationError(f"no certified solution at x = {where!r} times the mean: {_EXTREME}")
        self.margin = min(self.margin, float(np.min(-y.imag / np.abs(1 + y))))
        density = -y.imag / (np.pi * x) / float(self._scale)
        return density / xi.astype(np.float64) ** self._exponents[edge], t[:, None]

    def _companion_start(self, edge: np.ndarray, xi: Any) -> ComplexArray:
        """Approximate solutions from the companion matrix; not certified."""
        z = (self._locations[edge] + self._widths[edge] * xi**2).astype(np.complex128)
        roots = self.all_roots(z)
        usable = np.isfinite(roots)
        safe = np.where(usable, roots, -1j)
        # rounding may lift a real double root off the axis by a hair: of those that pass, take the one deepest inside
        depth = np.where(usable & self.physical(safe), -np.angle(safe) * (np.pi + np.angle(safe)), -1.0)
        chosen: ComplexArray = np.take_along_axis(safe, np.argmax(depth, axis=1)[:, None], axis=1)[:, 0]
        return chosen

    def _march(self, edge: np.ndarray, xi: Any) -> ComplexArray:
        """Continuation along the support from the edge itself, where the solution is explicit, to each of the points."""
        result = np.full(edge.shape, -1j)
        for number in np.unique(edge):
            here = np.array([number])
            width = self._fine_widths[here]
            length = abs(self._centres[number])
            eta = -np.sqrt(complex(self._widths[number] * self._bottoms[number, 0] / self._quotients[number, 0]))
            eta = eta if eta.imag < 0 else -eta
            at, step = 0.0, 1e-9
            for k in [k for k in np.argsort(xi) if edge[k] == number]:
                target = float(xi[k])
                while at < target:
                    following = min(target, at + step)
                    start = self._centres[number] + length * following * eta
                    point = np.array([following], dtype=np.longdouble)
                    t, _, fine = self._newton(here, point, width, np.array([start]), relative_to_imaginary=True)
                    new = (t[0] - self._centres[number]) / (length * following)
                    if fine[0] and abs(new - eta) < 0.2 * abs(eta):
                        at, eta = following, new
                        step *= 2
                    else:
                        step /= 4
                        if step < 1e-13 * max(at, 1e-9):
                            return result
                result[k] = self._centres[number] + length * at * eta
        return result

    def _newton(
        self,
        edge: np.ndarray,
        xi: Any,
        width: Any,
        t: ComplexArray,
        *,
        relative_to_imaginary: bool,
    ) -> tuple[ComplexArray, ComplexArray, np.ndarray]:
        """Newton for z(t) = z_e + width xi^2 in eta = (t - t_e)/(|t_e| xi), regular also at the edge itself.

        Returns t, y (from the expansion about the edge, more accurate than from t) and whether each point converged
        onto the physical sheet.
        """
        quotient, bottom, centre = self._quotients[edge].T, self._bottoms[edge].T, self._centres[edge]
        length = np.abs(centre)
        fine_xi, xi = xi, xi.astype(np.float64)
        fine_width, width = width, width.astype(np.complex128 if np.iscomplexobj(width) else np.float64)
        eta = (t - centre) / (length * xi)
        step = np.full(eta.shape, np.inf)
        finished = np.zeros(eta.shape, dtype=bool)
        for _ in range(40):
            delta = xi * eta
            q, dq = poly.horner_with_derivative(quotient, delta)
            b, db = poly.horner_with_derivative(bottom, delta)
            with np.errstate(all="ignore"):  # a point that runs away is caught by the test of `finished`
                change = (eta**2 * q - width * b) / (2 * eta * q + xi * (eta**2 * dq - width * db))
                eta = np.where(finished, eta, eta - change)
                size = np.abs(eta.imag) if relative_to_imaginary else np.abs(eta)
                new_step = np.where(finished, step, np.abs(change) / size)
            finished |= (new_step < 1e-14) | ((new_step < 1e-11) & (new_step > 0.25 * step))
            step = new_step
            if finished.all():
                break
        fine = finished & np.isfinite(eta)
        t, y = self._last_digits(edge, fine_xi, fine_width, np.where(fine, eta, -1j))
        fine &= np.isfinite(t) & np.isfinite(y)
        t, y = np.where(fine, t, -1j), np.where(fine, y, -1j)
        fine &= self.physical(t)
        if fine.any():
            self.worst_step = max(self.worst_step, float(step[fine].max()))
        return t, y, fine

    # -- Cauchy transform ---------------------------------------------------------------------------

    def cauchy(self, z: ComplexArray) -> ComplexArray:
        """G(z) off the spectrum, certified point by point."""
        result = np.empty_like(z)
        infinite = ~np.isfinite(z)
        real = (z.imag == 0) & ~infinite
        result[infinite] = 0
        result[real] = self._cauchy_on_axis(z.real[real])
        rest = np.flatnonzero(~real & ~infinite)
        for begin in range(0, len(rest), _ROWS):
            part = rest[begin : begin + _ROWS]
            above = np.where(z[part].imag > 0, z[part], z[part].conj())
            value = self._transform(above, self._solve_above(above))
            result[part] = np.where(z[part].imag > 0, value, value.conj())
        return result

    def _transform(self, z: ComplexArray, t: ComplexArray) -> ComplexArray:
        """G from t, by the form that does not cancel."""
        y, ratio = self.excess(t), self.ratio(t)
        if self.aspect == 1:  # zG^2 = t/P exactly, so that 1+y need not be formed where it vanishes
            root = np.sqrt(ratio / z)
            return np.where((root * (1 + y).conj() * z).real < 0, -root, root)
        return (1 + y) / z if self.aspect > 1 else ratio / (1 + self.c * y)

    def _solve_above(self, z: ComplexArray) -> ComplexArray:
        """The physical t for z in the upper half-plane: all roots, refined; exactly one must pass the sheet test."""
        roots = self.all_roots(z)
        usable = np.isfinite(roots)
        t = np.where(usable, roots, -1j)
        t = self._polish(np.repeat(z[:, None], t.shape[1], axis=1), t)
        good = usable & np.isfinite(t)
        good &= self.physical(np.where(good, t, -1j))
        chosen = np.take_along_axis(t, np.argmax(good, axis=1)[:, None], axis=1)[:, 0]
        certain = good.sum(axis=1) == 1
        # next to an edge the local equation is the regular one
        edge = np.argmin(np.abs(z[:, None] - self._locations), axis=1)
        offset = z - self._locations[edge]
        xi = np.sqrt(np.abs(offset / self._widths[edge]))
        local = np.flatnonzero(certain & (xi < 0.3))
        if local.size:
            width = offset[local] / xi[local] ** 2
            refined, _, fine = self._newton(edge[local], xi[local], width, chosen[local], relative_to_imaginary=False)
            chosen[local] = np.where(fine, refined, chosen[local])
            certain[local] &= fine
        for k in np.flatnonzero(~certain):
            chosen[k] = self._descend(complex(z[k]))
        return chosen

    def _polish(self, z: ComplexArray, t: ComplexArray) -> ComplexArray:
        one_plus_y, one_plus_cy, bottom = self._factors
        with np.errstate(all="ignore"):  # roots at infinity run off; the sheet test drops them
            for _ in range(4):
                a, da = poly.horner_with_derivative(one_plus_y, t)
                b, db = poly.horner_with_derivative(one_plus_cy, t)
                d, dd = poly.horner_with_derivative(bottom, t)
                t = t - (a * b - z * d) / (da * b + a * db - z * dd)
        return t

    def _descend(self, z: complex) -> complex:
        """Continuation from large Im z, where t is about 1/z, down to z; raises when it cannot be certified."""
        height = max(4.0 * abs(z), 4.0 * float(self._locations[-1]))
        point = complex(z.real, height)
        roots = self.all_roots(np.array([point]))[0]
        t = complex(roots[np.argmin(np.abs(roots - 1 / point))])
        factor = 0.5
        for _ in range(4000):
            if point == z:
                break
            following = complex(z.real, max(z.imag, point.imag * factor))
            new = complex(self._polish(np.array([following]), np.array([t]))[0])
            again = complex(self._polish(np.array([following]), np.array([new]))[0])
            on_sheet = bool(self.physical(np.array([new]))[0])
            if on_sheet and abs(again - new) < 1e-12 * abs(new) and abs(new - t) < 0.3 * abs(t):
                t, point, factor = new, following, max(0.05, factor**1.5)
            else:
                factor = factor**0.5
                if factor > 1 - 1e-6:
                    break
        if point != z:
            raise CertificationError(
                f"the Cauchy transform at z = {z!r} (in units of the mean) could not be certified; take a larger |Im z|"
            )
        return t

    def _cauchy_on_axis(self, x: Array) -> ComplexArray:
        """G at real x off the support: dz/dt < 0 on one real t-interval for each gap, so bisection cannot fail."""
        points = [float(t) for t in self._edge_points]
        brackets = [(points[0], 0.0)]  # left of the support
        brackets += [(points[k], points[k + 1]) for k in range(1, len(points) - 1, 2)]
        brackets += [(0.0, points[-1])]
        ends = np.array([-np.inf, *self._locations, np.inf])
        number = (np.searchsorted(ends, x) - 1) // 2
        first = np.array([b[0] for b in brackets])[number]
        second = np.array([b[1] for b in brackets])[number]
        # a gap's lower end in x belongs to its larger t
        low, high = np.minimum(first, second), np.maximum(first, second)
        t = self._bisect(x, low, high)
        return self._transform(x.astype(np.complex128), t.astype(np.complex128)).real.astype(np.complex128)

    def _bisect(self, x: Array, low: Array, high: Array) -> Array:
        one_plus_y, one_plus_cy, bottom = self._factors
        t = 0.5 * (low + high)
        for iteration in range(200):
            a, da = poly.horner_with_derivative(one_plus_y, t)
            b, db = poly.horner_with_derivative(one_plus_cy, t)
            d, dd = poly.horner_with_derivative(bottom, t)
            value, slope = a * b - x * d, da * b + a * db - x * dd
            too_large = value / d > 0  # z(t) > x: t must grow
            low, high = np.where(too_large, t, low), np.where(too_large, high, t)
            with np.errstate(all="ignore"):
                new = t - value / slope
            new = np.where((new > low) & (new < high) & (iteration % 3 != 2), new, 0.5 * (low + high))
            moved = np.abs(new - t)
            t = new
            if np.all(moved <= 4e-16 * np.abs(t)):
                break
        else:
            raise CertificationError(f"the Cauchy transform at the real points {x!r} did not settle; {_EXTREME}")
        return t

    # -- moments ------------------------------------------------------------------------------------

    def moment(self, k: int) -> float:
        """Moment of order k of the law of mean one; inf where it leaves the floats."""
        if k == 0:
            return 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            series = np.zeros(k + 1)
            chain = np.zeros(k)
            chain[0] = 1.0
            for j in range(1, k + 1):  # chain is now prod(1 + w v)^j, to order k-1
                for w in self.weights:
                    chain[1:] = chain[1:] + w * chain[:-1]
                series[j] = self.share * chain[j - 1] / j
            series[1] += self.rest
            factor = np.convolve(_plus_one(series), _plus_one(self.c * series))[:k]
            power = np.zeros(k)
            power[0] = 1.0
            for _ in range(k):
                power = np.convolve(power, factor)[:k]
            slope = series[1:] * np.arange(1, k + 1)
            value = float(slope @ power[::-1]) / k
        return value if np.isfinite(value) else float("inf")


def _plus_one(series: Array) -> Array:
    result = series.copy()
    result[0] += 1.0
    return result


def _turn(value: Any) -> int:
    """Argument over pi of a real number reached from the lower half-plane."""
    return -1 if value < 0 else 0
