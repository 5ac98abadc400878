r"""The Dyson equation of a weighted chain of Gaussian factors plus Gaussian noise.

The model. :math:`Y = (\sqrt{s}\,S + \sqrt{v}\,Z)/\sqrt{n}` has m rows and n columns, Z independent standard entries,
:math:`S = F_1 D_1 F_2 D_2 \cdots D_{L-1} F_L/\sqrt{N_1 \cdots N_{L-1}}` with independent Gaussian matrices
:math:`F_i` of size :math:`N_{i-1} \times N_i` (:math:`N_0 = m`, :math:`N_L = n`) and deterministic diagonal matrices
:math:`D_i`, the eigenvalues of :math:`D_i^2` having mean one, so that entries of S have variance one.

The equation. In the symmetrised variable :math:`\zeta = \sqrt z` (singular values; z belongs to :math:`Y Y^T`) the
averaged resolvents g of the rows and h of the columns and the two messages :math:`e_i, f_i` that cross each inner
space obey, with c = m/n and :math:`\langle\cdot\rangle_i` the mean over the eigenvalues :math:`m^2` of :math:`D_i^2`,

.. math::
    g &= 1/(\zeta - v h - s e_0), \qquad
    h = 1/\bigl(\zeta - v c g - \tfrac{N_{L-1}}{N_L}
        \langle m^2 f_{L-1}/(1 - m^2 f_{L-1} e_{L-1})\rangle_{L-1}\bigr), \\
    e_{i-1} &= \langle m^2 e_i/(1 - m^2 f_i e_i)\rangle_i, \qquad e_{L-1} = h, \\
    f_{i} &= \tfrac{N_{i-1}}{N_{i}}\langle m^2 f_{i-1}/(1 - m^2 f_{i-1} e_{i-1})\rangle_{i-1}, \qquad
    f_1 = \tfrac{N_0}{N_1} s g .

The sheet. For Im ζ > 0 the right-hand sides map :math:`(\mathbb C^-)^{2L}` into itself, so by the theorem of Earle and
Hamilton there is exactly one solution with all of g, h, e_i, f_i in the lower half-plane, and it is the resolvent.
Hence the certificate, which does not depend on how a solution was come by:

- Im z > 0, or z real inside the support: all of g, h, e_i, f_i lie strictly in the lower half-plane;
- z real off the support: they are real, and all their derivatives in ζ are negative (then the solution enters the
  lower half-planes as ζ moves up); for z < 0 they are negative imaginary, which is the first case again.

The reduction. :math:`N_i \langle m^2\chi_i/(1-m^2\chi_i)\rangle_i` with :math:`\chi_i = f_i e_i` is the same number
m u for all i, and s g h is u times the product of all :math:`\chi_i/\langle\cdots\rangle_i`. With q = gh, in
units of the mean s + v = 1, with ρ = s, u = ρ t, :math:`\chi_i = \kappa_i\tau_i`, :math:`\kappa_i = \rho\,m/N_i`:

.. math::
    t = T_i(\tau_i) = \Bigl\langle \frac{m^2\tau_i}{1 - m^2\kappa_i\tau_i}\Bigr\rangle_i, \qquad
    q = t\prod_i \frac{\tau_i}{t}, \qquad y = \rho t + (1-\rho) q, \qquad z q = (1+y)(1+cy),

with zG = 1 + y, and up to positive constants :math:`f_{i+1} = g \prod_{j \le i} t/\tau_j`,
:math:`e_i = (t/g) \prod_{j \le i} \tau_j/t`. The unknowns t and τ_i, taken by their logarithms, keep their relative
accuracy over all scales, and only z enters, never its root.

Sources: Girko 2001 and Hachem, Loubaton, Najim 2007 (equations of this kind); Ajanki, Erdős, Krüger 2017 (Dyson
equation, half-planes); Earle and Hamilton 1970 (uniqueness); Belinschi, Mai, Speicher 2017 (linearised products).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.dyson.continuation import RESIDUAL, STEP, STRICT, Continuation, Status
from gequiv.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROWS = 1 << 20  # points times eigenvalues worked on at once


@dataclass(frozen=True)
class ChainSolution:
    """Solution of the Dyson equation at an array of points; every array has the shape of z.

    Attributes
    ----------
    z : where.
    value : Cauchy transform G(z) of the eigenvalues of Y Yᵀ; NaN where the status is FAILED.
    status : `Status` of each point, as an integer array.
    residual : largest relative residual of the equations.
    step : last relative Newton step in the unknowns.
    iterations : Newton iterations spent, all heights together.
    unknowns : shape z.shape + (1 + groups,), t and the τ of each group of layers, in units of the mean: a start for
        `ChainEquation.solve` nearby.
    """

    z: ComplexArray
    value: ComplexArray
    status: np.ndarray
    residual: Array
    step: Array
    iterations: np.ndarray
    unknowns: ComplexArray


@dataclass(frozen=True)
class LayerGroup:
    """Layers that share size and weights: T(τ) = Σ weights·m τ/(1 - kappa m τ).

    Attributes
    ----------
    ratio : N_i/m, exact.
    kappa : ρ/ratio.
    eigenvalues : distinct non-zero eigenvalues of D², of mean one.
    fractions : their shares; they sum to one less the share of zeros.
    count : number of layers.
    raw, multiplicities, total : eigenvalues as given (non-zero, distinct), how often each occurs, and out of how many.
    """

    ratio: Fraction
    kappa: float
    eigenvalues: Array
    fractions: Array
    count: int
    raw: tuple[float, ...]
    multiplicities: tuple[int, ...]
    total: int
    strengths: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "strengths", self.fractions * self.eigenvalues)

    def transform(self, tau: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """T(τ)/τ and T'(τ)."""
        if self.eigenvalues.size == 1:
            inverse = 1 / (1 - self.kappa * self.eigenvalues[0] * tau)
            return self.strengths[0] * inverse, self.strengths[0] * inverse**2
        first, second = np.empty_like(tau), np.empty_like(tau)
        rows = max(1, _ROWS // self.eigenvalues.size)
        strengths = self.strengths.astype(np.complex128)
        for begin in range(0, tau.size, rows):
            part = slice(begin, begin + rows)
            inverse = 1 / (1 - (self.kappa * tau[part])[:, None] * self.eigenvalues)
            first[part] = inverse @ strengths
            inverse *= inverse
            second[part] = inverse @ strengths
        return first, second


class ChainEquation(Continuation):
    """The Dyson equation of Y = (√s S + √v Z)/√n; see the module's text.

    Parameters
    ----------
    inner : inner dimensions over rows, N_i/m; may be empty. Integers, floats or exact fractions.
    weights : for each inner space None (identity) or the eigenvalues of D_i², at least 0 and not all 0; they are
        normalised to mean one, so a mean other than one belongs into ``signal``.
    aspect : rows over columns, c = m/n.
    signal, noise : variances s > 0 and v > 0; fractions where the last digit of a float is not enough.

    Attributes
    ----------
    scale : s + v, the mean of the law.
    exact_variances : signal and noise as fractions.
    share : s/(s + v).
    groups : the distinct layers.

    Raises
    ------
    ParameterError : a parameter is of the wrong kind or out of range.

    Examples
    --------
    >>> equation = ChainEquation([0.5], [None], 1, 1.0, 0.7)
    >>> solution = equation.solve([1 + 1j, 2.0])
    >>> [Status(s).name for s in solution.status]
    ['UPPER', 'INSIDE']
    """

    def __init__(self, inner: Sequence[Any], weights: Sequence[Any], aspect: Any, signal: Any, noise: Any) -> None:
        self.inner = tuple(
            _checks.exact_positive(f"inner[{i}]", value) for i, value in enumerate(_sequence("inner", inner))
        )
        given = _sequence("weights", weights)
        if len(given) != len(self.inner):
            raise ParameterError(
                f"weights must have one entry (None or a list of eigenvalues) for each of the {len(self.inner)} inner "
                f"dimensions; got {len(given)}"
            )
        spectra = [_spectrum(f"weights[{i}]", value) for i, value in enumerate(given)]
        self.aspect = _checks.exact_positive("aspect", aspect)
        strength, rest = _checks.exact_positive("signal", signal), _checks.exact_positive("noise", noise)
        total = strength + rest
        try:
            self.signal, self.noise, self.scale = float(strength), float(rest), float(total)
        except OverflowError:
            raise ParameterError(f"signal + noise must be a finite float; got {signal!r} + {noise!r}") from None
        self.exact_variances = strength, rest
        self.c = float(self.aspect)
        self.share, self.rest = float(strength / total), float(rest / total)
        self._gap = float(1 - self.aspect)
        kinds: dict[tuple[Fraction, Any], int] = {}
        self._order = [kinds.setdefault(kind, len(kinds)) for kind in zip(self.inner, spectra, strict=True)]
        self.groups = tuple(
            _group(ratio, self.share, spectrum, self._order.count(number))
            for number, (ratio, spectrum) in enumerate(kinds)
        )
        self.width = 1 + len(self.groups)
        self._counts = np.array([g.count for g in self.groups], dtype=np.float64)
        self.upper_bound = self._upper_bound()
        """No eigenvalue lies above this number, in units of the mean: product of the factors' norms."""

    def __repr__(self) -> str:
        inner = ", ".join(f"{float(value):g}" for value in self.inner)
        return (
            f"{type(self).__name__}(inner=[{inner}], aspect={self.c:g}, signal={self.signal:g}, noise={self.noise:g})"
        )

    def _upper_bound(self) -> float:
        sizes = [1.0, *map(float, self.inner), 1 / self.c]
        norm = math.sqrt(self.share)
        for before, after in itertools.pairwise(sizes):
            norm *= 1 + math.sqrt(before / after)
        for number in self._order:
            norm *= math.sqrt(float(self.groups[number].eigenvalues.max()))
        return (norm + math.sqrt(self.rest) * (1 + math.sqrt(self.c))) ** 2

    # -- solving ------------------------------------------------------------------------------------

    def solve(self, z: Any, start: Any = None, *, on_failure: str = "raise") -> ChainSolution:
        """The certified solution at points of the closed upper half-plane, z = 0 and infinity excepted.

        Newton's method from the start where there is one, else by continuation from large Im z, where t and all τ are
        1/z, down to the point, each point with its own steps. On the real axis the boundary value from above is
        meant.

        Parameters
        ----------
        z : complex numbers with Im z >= 0, any shape.
        start : unknowns of a solution nearby, shape z.shape + (1 + groups,), as in `ChainSolution.unknowns`. A start
            that leads to a wrong root costs time, never correctness.
        on_failure : "raise", or "status" to get NaN and `Status.FAILED` instead.

        Raises
        ------
        ParameterError : z contains NaN, 0, infinity or a point of the lower half-plane; start has another shape.
        CertificationError : a point could not be certified. Points within about 1e-12 (relative) of an edge of the
            support are of this kind: there the last digit of z moves G by more than 1e-10.
        """
        points = self._points(z, on_failure)
        unknowns = None
        if start is not None:
            unknowns = _checks.complex_array("start", start)
            if unknowns.shape != (*points.shape, self.width):
                raise ParameterError(f"start must have the shape {(*points.shape, self.width)}; got {unknowns.shape}")
            unknowns = unknowns.reshape(points.size, self.width)
        found = self._certified(points, self.scale, unknowns, on_failure)
        failed = found.status == Status.FAILED
        value, _ = self.resolvents(found.z, found.unknowns)
        value = np.where(failed, complex(np.nan, np.nan), value / self.scale)
        value = np.where(found.status == Status.OUTSIDE, value.real, value)
        shape = points.shape
        return ChainSolution(
            points,
            value.reshape(shape),
            found.status.reshape(shape),
            found.residual.reshape(shape),
            found.step.reshape(shape),
            found.iterations.reshape(shape),
            np.where(failed[:, None], complex(np.nan, np.nan), found.unknowns).reshape(*shape, self.width),
        )

    def certify(self, z: Any, unknowns: Any) -> np.ndarray:
        """`Status` of given unknowns as they stand, without a Newton step: FAILED for another root or no root.

        Parameters
        ----------
        z, unknowns : as in `solve` and `ChainSolution`.
        """
        points = _checks.complex_array("z", z)
        state = np.asarray(unknowns, dtype=np.complex128).reshape(points.size, self.width)
        flat = points.reshape(-1) / self.scale
        with np.errstate(all="ignore"):
            residual, step = self._residual(flat, state)
            return self._status(flat, state, residual, step)[0].reshape(points.shape)

    def _asymptotic(self, z: ComplexArray) -> ComplexArray:
        return np.repeat((1 / z)[:, None], self.width, axis=1)

    # -- the equations ------------------------------------------------------------------------------

    def _parts(self, state: ComplexArray) -> tuple[ComplexArray, ComplexArray, ComplexArray]:
        """t, q and y."""
        t = state[:, 0]
        q = t.copy()
        for number, group in enumerate(self.groups):
            q = q * (state[:, 1 + number] / t) ** group.count
        return t, q, self.share * t + self.rest * q

    def _linearise(
        self, z: ComplexArray, state: ComplexArray
    ) -> tuple[ComplexArray, ComplexArray, ComplexArray, ComplexArray, ComplexArray]:
        """The equations in logarithms, linearised.

        Row i: alpha_i dlog τ_i - dlog t = -r_i. Row 0: Σ slope_i dlog τ_i + slope_0 dlog t = -main. Returns
        (alpha, r, slopes with slope_0 first, main, z q).
        """
        t, q, y = self._parts(state)
        alpha = np.empty((z.size, len(self.groups)), dtype=np.complex128)
        r = np.empty_like(alpha)
        for number, group in enumerate(self.groups):
            ratio, slope = group.transform(state[:, 1 + number])
            alpha[:, number] = slope / ratio
            r[:, number] = 1 - t / (state[:, 1 + number] * ratio)
        by_q = z * q - (1 + self.c + 2 * self.c * y) * self.rest * q
        slopes = np.empty((z.size, self.width), dtype=np.complex128)
        slopes[:, 0] = (1 - self._counts.sum()) * by_q - (1 + self.c + 2 * self.c * y) * self.share * t
        slopes[:, 1:] = self._counts * by_q[:, None]
        return alpha, r, slopes, z * q - (1 + y) * (1 + self.c * y), z * q

    @staticmethod
    def _eliminate(alpha: ComplexArray, r: ComplexArray, slopes: ComplexArray, main: ComplexArray) -> ComplexArray:
        """Solve the arrow-shaped linear system; the group with the smallest alpha is the last to go."""
        if alpha.shape[1] == 0:
            return (-main / slopes[:, 0])[:, None]
        rows = np.arange(len(main))
        pivot = np.argmin(np.abs(alpha), axis=1)
        over = slopes[:, 1:] / alpha
        shifted = over * r
        over[rows, pivot] = 0
        shifted[rows, pivot] = 0
        total = slopes[:, 0] + over.sum(axis=1)
        alpha_p, r_p = alpha[rows, pivot], r[rows, pivot]
        step_p = (-main + shifted.sum(axis=1) - total * r_p) / (slopes[rows, 1 + pivot] + alpha_p * total)
        result = np.empty_like(slopes)
        result[:, 0] = alpha_p * step_p + r_p
        result[:, 1:] = (result[:, :1] - r) / alpha
        result[rows, 1 + pivot] = step_p
        return result

    def _change(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        alpha, r, slopes, main, _ = self._linearise(z, state)
        return self._eliminate(alpha, r, slopes, main)

    def _residual(self, z: ComplexArray, state: ComplexArray) -> tuple[Array, Array]:
        """Largest relative residual, and the Newton step that is left."""
        alpha, r, slopes, main, zq = self._linearise(z, state)
        t, q, _ = self._parts(state)
        size = np.abs(self.share * t) + np.abs(self.rest * q)
        residual = np.abs(main) / (np.abs(zq) + (1 + size) * (1 + self.c * size))
        if alpha.shape[1]:
            residual = np.maximum(residual, np.abs(r).max(axis=1))
        return residual, np.abs(self._eliminate(alpha, r, slopes, main)).max(axis=1)

    def _tangent(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """d log(unknowns)/d log z."""
        alpha, r, slopes, _, zq = self._linearise(z, state)
        return self._eliminate(alpha, np.zeros_like(r), slopes, zq)

    # -- the sheet ----------------------------------------------------------------------------------

    def resolvents(self, z: ComplexArray, state: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """G and b + c a = (1+cy) + c(1+y), in units of the mean, by forms that do not cancel."""
        _, q, y = self._parts(state)
        root = np.sqrt(self._gap**2 + 4 * self.c * z * q)
        rough = 1 + self.c + 2 * self.c * y
        root = np.where((root * rough.conj()).real < 0, -root, root)
        if self._gap >= 0:
            return 2 * q / (self._gap + root), root
        return (root - self._gap) / (2 * self.c * z), root

    def _messages(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """g, e_0, f_1, e_1, ..., up to positive factors: one column each."""
        value, _ = self.resolvents(z, state)
        g = np.sqrt(z) * value
        t = state[:, 0]
        columns = [g, t / g]
        partial = np.ones_like(t)
        for number in self._order:
            partial = partial * (t / state[:, 1 + number])
            columns += [g * partial, t / (g * partial)]
        return np.stack(columns, axis=1)

    def _message_slopes(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """d log(messages)/d log z."""
        tangent = self._tangent(z, state)
        _, q, _ = self._parts(state)
        _, root = self.resolvents(z, state)
        slope_q = (1 - self._counts.sum()) * tangent[:, 0] + tangent[:, 1:] @ self._counts
        slope_root = 2 * self.c * z * q * (1 + slope_q) / root
        slope_g = 0.5 + (
            slope_q - slope_root / (self._gap + root) if self._gap >= 0 else slope_root / (root - self._gap) - 1
        )
        columns = [slope_g, tangent[:, 0] - slope_g]
        partial = np.zeros_like(slope_g)
        for number in self._order:
            partial = partial + tangent[:, 0] - tangent[:, 1 + number]
            columns += [slope_g + partial, tangent[:, 0] - slope_g - partial]
        return np.stack(columns, axis=1)

    def margin(self, z: ComplexArray, state: ComplexArray) -> Array:
        """Smallest sine of the angle by which a message lies below the real axis; positive on the physical sheet."""
        messages = self._messages(z, state)
        return np.asarray((-messages.imag / np.abs(messages)).min(axis=1))

    def _status(
        self, z: ComplexArray, state: ComplexArray, residual: Array, step: Array
    ) -> tuple[np.ndarray, ComplexArray]:
        """Status of each point, and the unknowns, made exactly real where the status says so."""
        status = np.full(z.size, int(Status.FAILED))
        solved = np.isfinite(state).all(axis=1) & (residual < RESIDUAL) & (step < STEP)
        messages = self._messages(z, state)
        depth = -messages.imag / np.abs(messages)
        below = solved & (depth > STRICT).all(axis=1)
        real = z.imag == 0
        positive = z.real > 0
        status[below & ~real] = Status.UPPER
        status[below & real & positive] = Status.INSIDE
        status[below & real & ~positive] = Status.OUTSIDE
        # too close to the real axis to tell by the sign: by the derivative
        close = np.flatnonzero(solved & ~below & (depth > -STRICT).all(axis=1) & positive)
        if close.size:
            points, unknowns = z[close], state[close]
            on_axis = real[close]
            unknowns = np.where(on_axis[:, None], unknowns.real.astype(np.complex128), unknowns)
            turning = (self._messages(points, unknowns) * self._message_slopes(points, unknowns)).real
            good = (turning < 0).all(axis=1) | ((turning < 0) | (depth[close] > STRICT)).all(axis=1)
            good &= ~on_axis | (np.abs(depth[close]) < STRICT).all(axis=1)
            status[close[good]] = np.where(on_axis[good], Status.OUTSIDE, Status.UPPER)
            state = state.copy()
            state[close[good]] = unknowns[good]
        return status, state


def _sequence(name: str, value: Any) -> list[Any]:
    try:
        return list(value)
    except TypeError as error:
        raise ParameterError(f"{name} must be a list with one entry for each inner dimension; got {value!r}") from error


_Spectrum = tuple[tuple[float, ...], tuple[int, ...], int]


def _spectrum(name: str, value: Any) -> _Spectrum:
    """Distinct non-zero eigenvalues, how often each occurs, and out of how many; (1,), (1,), 1 for the identity."""
    if value is None:
        return (1.0,), (1,), 1
    array = _checks.real_array(name, value)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError(f"{name} must be None or a non-empty list of eigenvalues; got shape {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any() or not (array > 0).any():
        raise ParameterError(f"{name} must hold finite eigenvalues of at least 0, one of them above 0; got {value!r}")
    values, counts = np.unique(array[array > 0], return_counts=True)
    if values.size == 1 and counts[0] == array.size:
        return (1.0,), (1,), 1
    return tuple(map(float, values)), tuple(map(int, counts)), int(array.size)


def _group(ratio: Fraction, share: float, spectrum: _Spectrum, count: int) -> LayerGroup:
    raw, multiplicities, total = spectrum
    values = np.array(raw) / max(raw)
    fractions = np.array(multiplicities) / total
    return LayerGroup(
        ratio, share / float(ratio), values / float(fractions @ values), fractions, count, raw, multiplicities, total
    )
