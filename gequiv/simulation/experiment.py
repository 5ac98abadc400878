r"""A law put to the test on attention matrices: draw, compare, split the distance, state a verdict."""

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
from gequiv.simulation.choice import Kind, LawChoice, Wish, choose_law, expected_outliers
from gequiv.simulation.comparison import ROUNDING, Comparison, compare, ks_between, sampling_noise, standard_error
from gequiv.simulation.description import bias_text, mask_text, weights_text

Outcome = Literal["held", "failed", "undecided"]
Progress = Callable[[int, int], object]

COVERAGE = 0.9545
"""Two-sided coverage of the intervals of the verdict: two standard errors of a normal distribution."""
OUTLIER_SPACINGS = 2.0
_DECADES = 100.0
"""Ratio of the ends of a panel beyond which the mass is integrated in the logarithm."""
_UNRESOLVED = 1e-4
"""Mass below the rounding of an interval from 0 that shows a density no power of x describes."""


@dataclass(frozen=True)
class Outliers:
    """The top of the drawn spectra against the right edge of the law, in squared singular values.

    Attributes
    ----------
    edge : right edge of the law.
    largest, largest_error : mean over draws of the largest value, and its standard error (None with one draw).
    threshold : edge + 2 (edge - the quantile at which one eigenvalue is left above): that spacing is the scale of the
        fluctuations at the edge, 2.8 Tracy–Widom units, and two of them above the edge are out of reach of the bulk.
        Twice the edge at most, where a heavy tail leaves the last eigenvalue far below it.
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
    law_kind : "finite-size", "limit", or "given" for a law of the user's.
    tolerance : largest Kolmogorov–Smirnov distance that counts as agreement.
    comparison : attention matrices against the law.
    limit, finite : the same matrices against the limit and the finite-size law; None where there is none, or where a
        law was given.
    law_distance : Kolmogorov–Smirnov distance between these two laws; None without both.
    linear : linear-model matrices of the same size against the limit law, or against the given one; its distance is
        noise alone, as its limit is the limit law. With a mask or a bias, against the finite-size law, which it need
        not follow.
    marchenko_pastur : attention matrices against Marchenko–Pastur of variance e^{β²} - 1, which independent entries
        would follow; with a mask or a bias, of the variance that its weights leave to such entries on average.
    finite_size_bias : two-sample distance of all attention spectra against all linear-model spectra.
    sampling_noise : mean distance of one draw of attention from its other draws pooled, times √(1 - 1/draws) for the
        noise of those: what ``comparison.ks_mean`` would be for the right law. None with one draw.
    linear_noise : the same for the linear model.
    solver_error : bound on the error of the law's distribution function from its certificate, mass error plus relative
        error of the density (whose integral it bounds); None for a law in closed form.
    mass : integral of ``law.pdf`` by an independent adaptive quadrature, plus the atoms.
    outliers : the top of the spectra against the right edge.
    expected_outliers : (location, visible, origin) of ``law.outliers()``; empty for a law without.
    outcome : "held", "failed" or "undecided".
    passed : whether the outcome is "held".
    verdict : the outcome in words, with its numbers and reasons.
    requested : number of draws that were asked for; more than ``comparison.draws`` if the run was interrupted.
    spectra, linear_spectra : ascending squared singular values, one array a draw.
    """

    attention: Attention
    law: Law
    law_kind: Kind
    tolerance: float
    comparison: Comparison
    limit: Comparison | None
    finite: Comparison | None
    law_distance: float | None
    linear: Comparison
    marchenko_pastur: Comparison
    finite_size_bias: float
    sampling_noise: float | None
    linear_noise: float | None
    solver_error: float | None
    mass: float
    outliers: Outliers
    expected_outliers: tuple[tuple[float, bool, str], ...]
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
            "law": self.law_kind,
            "laws_distance": self.law_distance,
            "ks_limit": None if self.limit is None else self.limit.ks,
            "ks_finite": None if self.finite is None else self.finite.ks,
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
            "expected_outliers": [list(outlier) for outlier in self.expected_outliers],
            "comparison": self.comparison.to_dict(),
            "limit": None if self.limit is None else self.limit.to_dict(),
            "finite": None if self.finite is None else self.finite.to_dict(),
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
                "mask": mask_text(head),
                "bias": bias_text(head),
                "weights": weights_text(head),
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
    law: Law | LawChoice | Wish | None = None,
    progress: Progress | None = None,
) -> Validation:
    r"""Draw attention matrices and say whether their spectrum follows the law.

    As many matrices of the linear model :math:`(\beta S + \sigma Z)/\sqrt{n}` of the same size are drawn beside them.
    They split the distance of attention from the limit law into what the right law would show anyway
    (``sampling_noise``), what attention of this size owes to not being its linear model yet (``finite_size_bias``), and
    the solver's error.

    The verdict. The mean over draws of the Kolmogorov–Smirnov distance, give or take t standard errors (Student's t at
    95.45 %, two for many draws), is held against the tolerance:

    - wholly below: the law held, unless Marchenko–Pastur fits better by more than the noise, or the law is no
      finite-size law and the linear model misses it by more than its own noise explains (twice the noise plus one
      eigenvalue: then the law is not this head's); then it failed. With a mask or a bias neither applies;
    - wholly above: it failed, and the verdict says why;
    - neither, or a single draw: not enough draws.

    Parameters
    ----------
    attention : the head.
    samples : number of attention matrices, at least 1; at least 2 for a verdict.
    rng : numpy Generator, or an int that seeds one. Every matrix is drawn from its own child Generator: draw i is the
        same whatever the number of draws.
    tolerance : largest distance that counts as agreement, in (0, 1).
    law : the law to test: a law, "finite", "limit", or None for the finite-size law where it matters, as `choose_law`
        says; or what that function returned. If the finite-size law could not be certified the verdict says so.
    progress : called with (done, total) before the first and after each matrix; total is twice the samples.

    Memory: four matrices of tokens × keys at a time (0.5 GB at 4000 tokens), plus 2 · samples · tokens numbers.

    Raises
    ------
    ParameterError : an argument is out of range; or beta is above 26.64, where e^{β²} exceeds the floats; or the number
        of covariance eigenvalues does not divide the width.
    CertificationError : the law could not be certified.
    ValidationInterrupted : Ctrl-C after at least one draw; a KeyboardInterrupt that carries the result so far.
    """
    if not isinstance(attention, Attention):
        raise ParameterError(f"attention must be a gequiv.Attention; got {attention!r}")
    samples = _checks.positive_integer("samples", samples)
    tolerance = _checks.positive_real("tolerance", tolerance)
    if tolerance >= 1:
        raise ParameterError(f"tolerance must lie strictly between 0 and 1; got {tolerance!r}")
    generators = _children(_checks.generator(rng), 2 * samples)
    choice = _chosen(attention, law)
    mass = total_mass(choice.law)

    spectra: list[Array] = []
    linear: list[Array] = []
    try:
        _report(progress, 0, 2 * samples)
        for i in range(samples):
            drawn = attention.spectrum(generators[2 * i])
            _report(progress, 2 * i + 1, 2 * samples)
            matrix = ensemble.draw_linear_model(attention, generators[2 * i + 1])
            linear.append(ensemble.squared_singular_values(matrix))
            spectra.append(drawn)
            _report(progress, 2 * i + 2, 2 * samples)
    except KeyboardInterrupt as interrupt:
        if not spectra:
            raise
        partial = _conclude(attention, choice, mass, tolerance, samples, spectra, linear[: len(spectra)])
        raise ValidationInterrupted(partial) from interrupt
    return _conclude(attention, choice, mass, tolerance, samples, spectra, linear)


def marchenko_pastur(head: Attention) -> MarchenkoPastur:
    """The law of the head's matrix if its entries were independent, which the field believed: see `Validation`."""
    variance, visibility = head.linear_model().total_variance, head.visibility
    if visibility is not None:
        variance *= float(np.mean(head.columns / visibility.effective_keys()))
    return MarchenkoPastur(float(head.aspect), variance)


def _chosen(head: Attention, law: Any) -> LawChoice:
    if isinstance(law, LawChoice):
        return law
    if isinstance(law, Law):
        return LawChoice(law, "given")
    if law is not None and not isinstance(law, str):
        raise ParameterError(f"law must be a gequiv law, 'auto', 'finite', 'limit' or None; got {law!r}")
    return choose_law(head, law or "auto")  # type: ignore[arg-type]


def total_mass(law: Law) -> float:
    r"""Mass of a law from its density alone: adaptive quadrature of ``law.pdf`` on every interval, plus the atoms.

    With :math:`x = a + (b - a)\sin^2(\theta/2)` square-root and inverse square-root edges become smooth; where
    neighbouring quantiles are more than two decades apart the variable is log x. The result owes nothing to the law's
    own distribution function but the places, its quantiles, at which the range is cut. One exception: where a density
    on (0, b), such as :math:`1/(x \log^2 x)`, puts more than 1e-4 below :math:`10^{-12} b`, that share comes from it.
    """
    cuts = np.asarray(law.ppf(np.linspace(0.0, 1.0, 9)))
    total = [weight for _, weight in law.atoms()]
    for low, high in law.support():
        begin = low
        if low == 0:
            below = float(law.cdf(ROUNDING * high)) - float(law.cdf(0.0))
            if below > _UNRESOLVED:
                begin = ROUNDING * high
                total.append(below)
        inside = [begin, *np.unique(cuts[(cuts > begin) & (cuts < high)]).tolist(), high]
        if inside[-2] * _DECADES < high:
            inside.insert(-1, high / 2)
        total.extend(_panel_mass(law, low, high, *panel) for panel in itertools.pairwise(inside))
    return math.fsum(total)


def _panel_mass(law: Law, low: float, high: float, begin: float, end: float) -> float:
    """Mass between two points of one interval of the support."""
    from scipy.integrate import quad

    width = high - low

    def of_angle(theta: float) -> float:
        x = min(low + width * math.sin(theta / 2) ** 2, high)
        return float(law.pdf(x)) * width / 2 * math.sin(theta)

    def of_logarithm(t: float) -> float:
        x = math.exp(t)
        return float(law.pdf(x)) * x

    far = begin > 0 and begin * _DECADES < end < high
    limits = [math.log(x) if far else 2 * math.asin(math.sqrt((x - low) / width)) for x in (begin, end)]
    integrand = of_logarithm if far else of_angle
    # full_output keeps quad silent where rounding stops it short of the tolerance
    return float(quad(integrand, *limits, epsabs=1e-13, epsrel=1e-12, limit=200, full_output=1)[0])


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
    head: Attention,
    choice: LawChoice,
    mass: float,
    tolerance: float,
    requested: int,
    spectra: list[Array],
    linear: list[Array],
) -> Validation:
    law = choice.law
    comparison = compare(law, spectra)
    limit, finite = (
        None if other is None else comparison if other is law else compare(other, spectra)
        for other in (choice.limit, choice.finite)
    )
    evidence = Evidence(
        kind=choice.kind,
        law=comparison,
        limit=limit,
        finite=finite,
        linear=compare(choice.limit or law, linear),
        marchenko_pastur=compare(marchenko_pastur(head), spectra),
        bias=ks_between(spectra, linear),
        noise=sampling_noise(spectra),
        linear_noise=sampling_noise(linear),
        refusal=choice.refusal,
        linear_model_follows=head.visibility is None and not hasattr(law, "outliers"),
    )
    outcome, verdict = _judge(head, tolerance, evidence)
    certificate = getattr(law, "certificate", None)
    return Validation(
        attention=head,
        law=law,
        law_kind=choice.kind,
        tolerance=tolerance,
        comparison=comparison,
        limit=limit,
        finite=finite,
        law_distance=choice.distance,
        linear=evidence.linear,
        marchenko_pastur=evidence.marchenko_pastur,
        finite_size_bias=evidence.bias,
        sampling_noise=evidence.noise,
        linear_noise=evidence.linear_noise,
        solver_error=None if certificate is None else float(certificate.mass_error + certificate.density_error),
        mass=mass,
        outliers=_outliers(law, spectra),
        expected_outliers=expected_outliers(law),
        outcome=outcome,
        verdict=verdict,
        requested=requested,
        spectra=tuple(spectra),
        linear_spectra=tuple(linear),
    )


def _outliers(law: Law, spectra: list[Array]) -> Outliers:
    edge = max([*(high for _, high in law.support()), *(location for location, _ in law.atoms())])
    spacing = max(edge - float(law.ppf(max(0.0, 1 - 1 / spectrum.size))) for spectrum in spectra)
    threshold = edge + min(OUTLIER_SPACINGS * spacing, edge)
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


@dataclass(frozen=True)
class Evidence:
    """What the verdict rests on: fields as those of `Validation`.

    ``refusal`` is why there is no finite-size law, ``linear_model_follows`` whether the law is the linear model's.
    """

    kind: Kind
    law: Comparison
    limit: Comparison | None
    finite: Comparison | None
    linear: Comparison
    marchenko_pastur: Comparison
    bias: float
    noise: float | None
    linear_noise: float | None
    refusal: str | None
    linear_model_follows: bool


def _judge(head: Attention, tolerance: float, evidence: Evidence) -> tuple[Outcome, str]:
    outcome, verdict = _compared(head, tolerance, evidence)
    return outcome, " ".join([verdict, *_other_law(head, evidence)])


def _other_law(head: Attention, evidence: Evidence) -> list[str]:
    """What the law that was not tested would have said."""
    if evidence.kind == "finite-size":
        if evidence.limit is not None:
            return [f"The limit theorem alone: KS {_plain(evidence.limit.ks_mean)}."]
        return ["No limit theorem covers a mask or a bias."] if head.visibility is not None else []
    if evidence.finite is not None:
        return [f"The finite-size law: KS {_plain(evidence.finite.ks_mean)}."]
    if evidence.refusal is not None:
        return [f"The limit law was tested, as the finite-size law is not to be had: {evidence.refusal}."]
    return []


def _compared(head: Attention, tolerance: float, evidence: Evidence) -> tuple[Outcome, str]:
    comparison, linear, believed = evidence.law, evidence.linear, evidence.marchenko_pastur
    noise, linear_noise, bias = evidence.noise, evidence.linear_noise, evidence.bias
    named = " from the finite-size law" if evidence.kind == "finite-size" else ""
    distance = f"KS distance {_plain(comparison.ks_mean)}"
    if comparison.ks_error is None or noise is None or linear_noise is None:
        return "undecided", (
            f"Not enough draws: {distance}{named} from one draw, without an error bar, against a tolerance of "
            f"{tolerance:g}; two draws are the least, four are better."
        )
    margin = _student(comparison.draws) * comparison.ks_error
    distance += f" ± {_plain(margin)} (mean of {comparison.draws} draws, 95 %){named}"

    size = comparison.size / comparison.draws
    allowed = 2 * linear_noise + 1 / size
    if evidence.linear_model_follows and linear.ks_mean > allowed:
        return "failed", (
            f"Failed: the linear model itself, {_sizes(head)}, is at KS {_plain(linear.ks_mean)} from the law, where "
            f"its own noise explains {_plain(linear_noise)} (at most {_plain(allowed)}): this is not this head's law"
            + (", or the matrix is too small for any limit. " if size < 50 else ". ")
            + f"Attention is at {distance}, tolerance {tolerance:g}."
        )
    gains = tuple(a - b for a, b in zip(comparison.ks_per_draw, believed.ks_per_draw, strict=True))
    gain, gain_error = math.fsum(gains) / len(gains), standard_error(gains) or 0.0
    if head.visibility is None and gain > max(noise, _student(comparison.draws) * gain_error):
        return "failed", (
            f"Failed: Marchenko–Pastur, at KS {_plain(believed.ks_mean)}, fits better than the law, at {distance}, by "
            f"more than the sampling noise of {_plain(noise)}. {_reasons(head, evidence)}"
        )
    if comparison.ks_mean - margin > tolerance:
        return "failed", (
            f"Failed: {distance} is above the tolerance of {tolerance:g}; sampling noise explains {_plain(noise)}. "
            + _reasons(head, evidence)
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


def _reasons(head: Attention, evidence: Evidence) -> str:
    """Why attention of this size is not at the law, in words."""
    if not evidence.linear_model_follows:
        causes = _tail(head) or ["no reason is known, for which the head deserves a report"]
        return "What the law leaves out: " + "; ".join(causes) + "."
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
    causes += _tail(head)
    if not causes:
        causes.append("take more tokens at the same proportions: the distance falls about as 1/tokens")
    return (
        f"The law is right for the linear model (KS {_plain(evidence.linear.ks_mean)}), from which attention of this "
        f"size, {_sizes(head)}, is {_plain(evidence.bias)} away: " + "; ".join(causes) + "."
    )


def _tail(head: Attention) -> list[str]:
    """Whether the log-normal tail of the entries is felt over the keys that a typical row sees."""
    visibility = head.visibility
    keys = head.columns if visibility is None else round(float(np.median(visibility.effective_keys())))
    log_tail = 6 * (head.beta * head.spread) ** 2 - math.log(keys)
    if head.score is not None or log_tail <= math.log(0.1):
        return []
    return [
        f"beta {head.beta:g} is large for {keys} keys{'' if visibility is None else ' a row'}: the entries' log-normal "
        "tail is felt"
        + (f", e^(6 beta^2)/keys = {math.exp(log_tail):.3g} where well below 1 is needed" if log_tail < 100 else "")
    ]


def _sizes(head: Attention) -> str:
    width = "" if head.width is None else f", width {head.width}"
    keys = "" if head.columns == head.tokens else f" and {head.columns} keys"
    return f"{head.tokens} tokens{keys}, head width {head.head_dim}{width}"


def _plain(value: float) -> str:
    return f"{value:.3g}"
