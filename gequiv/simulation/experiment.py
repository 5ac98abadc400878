r"""The limit law put to the test on attention matrices: draw, compare, split the distance, state a verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention import ensemble
from gequiv.attention.parameters import Attention
from gequiv.errors import ParameterError
from gequiv.laws.base import Law
from gequiv.laws.marchenko_pastur import MarchenkoPastur
from gequiv.simulation.comparison import Comparison, compare, ks_between, standard_error

Outcome = Literal["held", "failed", "undecided"]
Progress = Callable[[int, int], object]

COVERAGE = 0.9545
"""Two-sided coverage of the intervals of the verdict: two standard errors of a normal distribution."""
OUTLIER_SPACINGS = 2.0


@dataclass(frozen=True)
class Outliers:
    """The top of the drawn spectra against the right edge of the law, in squared singular values.

    Attributes
    ----------
    edge : right edge of the law.
    largest, largest_error : mean over draws of the largest value, and its standard error (None with one draw).
    threshold : edge + 2 (edge - the quantile at which one eigenvalue is left above): that spacing is the scale of the
        fluctuations at the edge, 2.8 Tracy–Widom units, and two of them above the edge are out of reach of the bulk.
    count : mean number of values a draw above the threshold.
    """

    edge: float
    largest: float
    largest_error: float | None
    threshold: float
    count: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            "edge": self.edge,
            "largest": self.largest,
            "largest_error": self.largest_error,
            "threshold": self.threshold,
            "count": self.count,
        }


@dataclass(frozen=True)
class Validation:
    """What `validate` measured and concluded.

    Attributes
    ----------
    attention, law : what was compared.
    tolerance : largest Kolmogorov–Smirnov distance that counts as agreement.
    comparison : attention matrices against the law.
    linear : linear-model matrices of the same size against the law; its distance is noise alone, as its limit is
        the law.
    marchenko_pastur : attention matrices against Marchenko–Pastur of variance e^{β²} - 1, which independent entries
        would follow.
    finite_size_bias : two-sample distance of all attention spectra against all linear-model spectra.
    sampling_noise : mean distance of one draw of attention from its other draws pooled, times √(1 - 1/draws) for the
        noise of those: what ``comparison.ks_mean`` would be for the right law. None with one draw.
    linear_noise : the same for the linear model.
    solver_error : bound on the error of the law's distribution function from its certificate, mass error plus relative
        error of the density (whose integral it bounds); None for a law in closed form.
    mass : integral of ``law.pdf`` by an independent adaptive quadrature, plus the atoms.
    outliers : the top of the spectra against the right edge.
    outcome : "held", "failed" or "undecided".
    passed : whether the outcome is "held".
    verdict : the outcome in words, with its numbers and reasons.
    requested : number of draws that were asked for; more than ``comparison.draws`` if the run was interrupted.
    spectra, linear_spectra : ascending squared singular values, one array a draw.
    """

    attention: Attention
    law: Law
    tolerance: float
    comparison: Comparison
    linear: Comparison
    marchenko_pastur: Comparison
    finite_size_bias: float
    sampling_noise: float | None
    linear_noise: float | None
    solver_error: float | None
    mass: float
    outliers: Outliers
    outcome: Outcome
    verdict: str
    requested: int
    spectra: tuple[Array, ...] = field(repr=False, compare=False)
    linear_spectra: tuple[Array, ...] = field(repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """Whether the law held."""
        return self.outcome == "held"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON; the spectra are left out."""
        head = self.attention
        return {
            "passed": self.passed,
            "outcome": self.outcome,
            "verdict": self.verdict,
            "tolerance": self.tolerance,
            "ks": self.comparison.ks,
            "ks_mean": self.comparison.ks_mean,
            "ks_error": self.comparison.ks_error,
            "wasserstein": self.comparison.wasserstein,
            "wasserstein_error": self.comparison.wasserstein_error,
            "support": [[float(a), float(b)] for a, b in self.law.support()],
            "atoms": [[float(location), float(weight)] for location, weight in self.law.atoms()],
            "mass": self.mass,
            "finite_size_bias": self.finite_size_bias,
            "sampling_noise": self.sampling_noise,
            "linear_noise": self.linear_noise,
            "solver_error": self.solver_error,
            "outliers": self.outliers.to_dict(),
            "comparison": self.comparison.to_dict(),
            "linear": self.linear.to_dict(),
            "marchenko_pastur": self.marchenko_pastur.to_dict(),
            "draws": self.comparison.draws,
            "requested": self.requested,
            "attention": {
                "tokens": head.tokens,
                "head_dim": head.head_dim,
                "beta": head.beta,
                "keys": head.columns,
                "width": head.width,
                "covariance": None if head.covariance is None else list(head.covariance),
                "score": None if head.score is None else str(head.score),
            },
        }


class ValidationInterrupted(KeyboardInterrupt):
    """Ctrl-C during `validate` after at least one complete draw.

    Attributes
    ----------
    partial : the `Validation` of the draws that were complete.
    """

    def __init__(self, partial: Validation) -> None:
        super().__init__(f"interrupted after {partial.comparison.draws} of {partial.requested} draws")
        self.partial = partial


def validate(
    attention: Attention,
    samples: int,
    rng: Any,
    *,
    tolerance: float = 0.05,
    law: Law | None = None,
    progress: Progress | None = None,
) -> Validation:
    r"""Draw attention matrices and say whether their spectrum follows the limit law.

    As many matrices of the linear model :math:`(\beta S + \sigma Z)/\sqrt{n}` of the same size are drawn beside them.
    They split the distance of attention from the law into what the right law would show anyway (``sampling_noise``),
    what attention of this size owes to not being its linear model yet (``finite_size_bias``), and the solver's error.

    The verdict. The mean over draws of the Kolmogorov–Smirnov distance, give or take t standard errors (Student's t at
    95.45 %, two for many draws), is held against the tolerance:

    - wholly below: the law held, unless the linear model misses the law by more than its own noise explains (twice the
      noise plus one eigenvalue: then the law is not this head's), or Marchenko–Pastur fits better by more than the
      noise; then it failed;
    - wholly above: it failed, and the verdict says why;
    - neither, or a single draw: not enough draws.

    Parameters
    ----------
    attention : the head.
    samples : number of attention matrices, at least 1; at least 2 for a verdict.
    rng : numpy Generator, or an int that seeds one. Every matrix is drawn from its own child Generator: draw i is the
        same whatever the number of draws.
    tolerance : largest distance that counts as agreement, in (0, 1).
    law : the law to test, ``attention.limit_law()`` if None.
    progress : called with (done, total) before the first and after each matrix; total is twice the samples.

    Memory: four matrices of tokens × keys at a time (0.5 GB at 4000 tokens), plus 2 · samples · tokens numbers.

    Raises
    ------
    ParameterError : an argument is out of range; or beta is above 26.64, where e^{β²} exceeds the floats; or the number
        of covariance eigenvalues does not divide the width.
    CertificationError : the limit law could not be certified.
    ValidationInterrupted : Ctrl-C after at least one draw; a KeyboardInterrupt that carries the result so far.
    """
    if not isinstance(attention, Attention):
        raise ParameterError(f"attention must be a gequiv.Attention; got {attention!r}")
    samples = _checks.positive_integer("samples", samples)
    tolerance = _checks.positive_real("tolerance", tolerance)
    if tolerance >= 1:
        raise ParameterError(f"tolerance must lie strictly between 0 and 1; got {tolerance!r}")
    if law is not None and not isinstance(law, Law):
        raise ParameterError(f"law must be a gequiv law or None; got {law!r}")
    generators = _children(_checks.generator(rng), 2 * samples)
    law = attention.limit_law() if law is None else law
    mass = total_mass(law)

    spectra: list[Array] = []
    linear: list[Array] = []
    try:
        _report(progress, 0, 2 * samples)
        for i in range(samples):
            matrix = ensemble.centred(ensemble.draw_attention(attention, generators[2 * i]))
            drawn = ensemble.squared_singular_values(matrix)
            _report(progress, 2 * i + 1, 2 * samples)
            matrix = ensemble.draw_linear_model(attention, generators[2 * i + 1])
            linear.append(ensemble.squared_singular_values(matrix))
            spectra.append(drawn)
            _report(progress, 2 * i + 2, 2 * samples)
    except KeyboardInterrupt as interrupt:
        if not spectra:
            raise
        partial = _conclude(attention, law, mass, tolerance, samples, spectra, linear[: len(spectra)])
        raise ValidationInterrupted(partial) from interrupt
    return _conclude(attention, law, mass, tolerance, samples, spectra, linear)


def total_mass(law: Law) -> float:
    r"""Mass of a law from its density alone: adaptive quadrature of ``law.pdf`` on every interval, plus the atoms.

    With :math:`x = a + (b - a)\sin^2(\theta/2)` square-root and inverse square-root edges become smooth. The result
    owes nothing to the law's own distribution function but the places, its quantiles, at which the range is cut.
    """
    from scipy.integrate import quad

    cuts = np.asarray(law.ppf(np.linspace(0.0, 1.0, 9)))
    total = [weight for _, weight in law.atoms()]
    for low, high in law.support():
        width = high - low

        def integrand(theta: float, low: float = low, high: float = high, width: float = width) -> float:
            x = min(low + width * math.sin(theta / 2) ** 2, high)
            return float(law.pdf(x)) * width / 2 * math.sin(theta)

        inside = cuts[(cuts > low) & (cuts < high)]
        angles = np.unique([0.0, *(2 * np.arcsin(np.sqrt((inside - low) / width))), math.pi])
        for begin, end in itertools.pairwise(angles):
            # full_output keeps quad silent where rounding stops it short of the tolerance
            total.append(quad(integrand, begin, end, epsabs=1e-13, epsrel=1e-12, limit=200, full_output=1)[0])
    return math.fsum(total)


def _children(rng: np.random.Generator, count: int) -> list[np.random.Generator]:
    try:
        return list(rng.spawn(count))
    except TypeError as error:
        raise ParameterError(
            "rng must be able to spawn child generators, as numpy.random.default_rng(seed) is; "
            f"got {rng!r}, whose bit generator has no seed sequence"
        ) from error


def _report(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def _conclude(
    head: Attention, law: Law, mass: float, tolerance: float, requested: int, spectra: list[Array], linear: list[Array]
) -> Validation:
    believed = MarchenkoPastur(float(head.aspect), head.linear_model().total_variance)
    comparison, linear_comparison = compare(law, spectra), compare(law, linear)
    marchenko_pastur = compare(believed, spectra)
    noise, linear_noise = _noise(spectra), _noise(linear)
    bias = ks_between(spectra, linear)
    outcome, verdict = _judge(
        head, tolerance, comparison, linear_comparison, marchenko_pastur, bias, noise, linear_noise
    )
    certificate = getattr(law, "certificate", None)
    return Validation(
        attention=head,
        law=law,
        tolerance=tolerance,
        comparison=comparison,
        linear=linear_comparison,
        marchenko_pastur=marchenko_pastur,
        finite_size_bias=bias,
        sampling_noise=noise,
        linear_noise=linear_noise,
        solver_error=None if certificate is None else float(certificate.mass_error + certificate.density_error),
        mass=mass,
        outliers=_outliers(law, spectra),
        outcome=outcome,
        verdict=verdict,
        requested=requested,
        spectra=tuple(spectra),
        linear_spectra=tuple(linear),
    )


def _noise(spectra: list[Array]) -> float | None:
    count = len(spectra)
    if count < 2:
        return None
    distances = [ks_between(spectra[i], spectra[:i] + spectra[i + 1 :]) for i in range(count)]
    return math.fsum(distances) / count * math.sqrt((count - 1) / count)


def _outliers(law: Law, spectra: list[Array]) -> Outliers:
    edge = max([*(high for _, high in law.support()), *(location for location, _ in law.atoms())])
    spacing = max(edge - float(law.ppf(max(0.0, 1 - 1 / spectrum.size))) for spectrum in spectra)
    threshold = edge + OUTLIER_SPACINGS * spacing
    tops = tuple(float(spectrum[-1]) for spectrum in spectra)
    return Outliers(
        edge=float(edge),
        largest=math.fsum(tops) / len(tops),
        largest_error=standard_error(tops),
        threshold=float(threshold),
        count=sum(int(np.count_nonzero(spectrum > threshold)) for spectrum in spectra) / len(spectra),
    )


def _student(draws: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(draws - 1, 0.5 + COVERAGE / 2))


def _judge(
    head: Attention,
    tolerance: float,
    comparison: Comparison,
    linear: Comparison,
    believed: Comparison,
    bias: float,
    noise: float | None,
    linear_noise: float | None,
) -> tuple[Outcome, str]:
    distance = f"KS distance {_plain(comparison.ks_mean)}"
    if comparison.ks_error is None or noise is None or linear_noise is None:
        return "undecided", (
            f"Not enough draws: {distance} from one draw, without an error bar, against a tolerance of {tolerance:g}; "
            "two draws are the least, four are better."
        )
    margin = _student(comparison.draws) * comparison.ks_error
    distance += f" ± {_plain(margin)} (mean of {comparison.draws} draws, 95 %)"

    size = comparison.size / comparison.draws
    allowed = 2 * linear_noise + 1 / size
    if linear.ks_mean > allowed:
        return "failed", (
            f"Failed: the linear model itself, {_sizes(head)}, is at KS {_plain(linear.ks_mean)} from the law, where "
            f"its own noise explains {_plain(linear_noise)} (at most {_plain(allowed)}): this is not this head's law"
            + (", or the matrix is too small for any limit. " if size < 50 else ". ")
            + f"Attention is at {distance}, tolerance {tolerance:g}."
        )
    gains = tuple(a - b for a, b in zip(comparison.ks_per_draw, believed.ks_per_draw, strict=True))
    gain, gain_error = math.fsum(gains) / len(gains), standard_error(gains) or 0.0
    if gain > max(noise, _student(comparison.draws) * gain_error):
        return "failed", (
            f"Failed: Marchenko–Pastur, at KS {_plain(believed.ks_mean)}, fits better than the law, at {distance}, by "
            f"more than the sampling noise of {_plain(noise)}. {_reasons(head, bias, linear)}"
        )
    if comparison.ks_mean - margin > tolerance:
        return "failed", (
            f"Failed: {distance} is above the tolerance of {tolerance:g}; sampling noise explains {_plain(noise)}. "
            + _reasons(head, bias, linear)
        )
    if comparison.ks_mean + margin > tolerance:
        return "undecided", (
            f"Not enough draws: {distance} does not lie clearly on one side of the tolerance of {tolerance:g}; "
            "take more draws."
        )
    farther = believed.ks_mean / comparison.ks_mean
    return "held", (
        f"Held: {distance} is below the tolerance of {tolerance:g}. Marchenko–Pastur is at {_plain(believed.ks_mean)}"
        + (f", {farther:.1f} times as far" if farther > 1 else "")
        + f". Sampling noise explains {_plain(noise)}, and attention and its linear model are {_plain(bias)} apart."
    )


def _reasons(head: Attention, bias: float, linear: Comparison) -> str:
    """Why attention of this size is not at its limit, in words."""
    causes = []
    narrow = min(head.inner_dimensions)
    harmonics = narrow * (narrow + 1) // 2 - 1
    if harmonics < 20 * head.columns:
        name = "head width" if narrow == head.head_dim else "embedding width"
        causes.append(
            f"the {name} {narrow} is small for {head.columns} keys: the limit takes the quadratic part of the "
            f"exponential for noise, which needs many more than {head.columns} quadratic features, and there are "
            f"{harmonics}"
        )
    log_tail = 6 * (head.beta * head.spread) ** 2 - math.log(head.columns)
    if head.score is None and log_tail > math.log(0.1):
        causes.append(
            f"beta {head.beta:g} is large for {head.columns} keys: the entries' log-normal tail is felt, "
            f"e^(6 beta^2)/keys = {math.exp(log_tail):.3g} where well below 1 is needed"
            if log_tail < 100
            else f"beta {head.beta:g} is large for {head.columns} keys: the entries' log-normal tail is felt"
        )
    if not causes:
        causes.append("take more tokens at the same proportions: the distance falls about as 1/tokens")
    return (
        f"The law is right for the linear model (KS {_plain(linear.ks_mean)}), from which attention of this size, "
        f"{_sizes(head)}, is {_plain(bias)} away: " + "; ".join(causes) + "."
    )


def _sizes(head: Attention) -> str:
    width = "" if head.width is None else f", width {head.width}"
    keys = "" if head.columns == head.tokens else f" and {head.columns} keys"
    return f"{head.tokens} tokens{keys}, head width {head.head_dim}{width}"


def _plain(value: float) -> str:
    return f"{value:.3g}"
