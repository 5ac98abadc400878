"""Verdicts on the claims of a campaign, each with what its test could have seen.

Every claim is that a quantity lies in a range; `gequiv.simulation.campaign.power.judge` has the rule. Quantities are

- agreement, disagreement: mean KS over draws, at most `tolerance`, at least `at_least`;
- closer: mean over draws of KS to `than` less `factor` times KS to `law`, paired by draw, above 0;
- rate: exponent of `gequiv.simulation.campaign.rates`, one verdict a line of models;
- outliers: mean largest value over the predicted one less 1, within ± `tolerance`;
- statistic: mean of a row statistic, in a range, or relative to independent log-normal entries within ± `tolerance`.

"moments" is a test of equality instead: it has failed if some moment differs from the law's by more than Student's
quantile at `level` over the number of moments (Bonferroni); else it has held, whatever the draws could have seen.

A test could have failed under what the campaign knows of. That is the other laws of the model, and always
Marchenko–Pastur, on the same draws; the right law, at the noise, for "disagreement"; exchanged laws for "closer"; no
convergence, that of noise (exponent -1) and the exponents of all other lines for "rate"; a spectrum without the outlier
for "outliers"; any value that a statistic can have for "statistic".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gequiv.simulation.campaign.findings import ClaimFinding, Estimate, ModelFinding, Power, Rate
from gequiv.simulation.campaign.measured import LawMeasured, Measured
from gequiv.simulation.campaign.model import Campaign, Claim, Model
from gequiv.simulation.campaign.power import Judgement, estimate, judge, noncentrality, student
from gequiv.simulation.campaign.rates import fit_rates

_LAW_WORDS = {"finite": "the finite-size law", "limit": "the limit law", "marchenko-pastur": "Marchenko–Pastur"}
_ROUNDING = 1e-9
_ABOVE = math.nextafter(0.0, 1.0)
_ONE_DRAW = "could not have failed: there is no error bar with less than two draws"
_SHARES = ("participation", "energy_participation", "largest")


def decide(
    campaign: Campaign, measured: Mapping[int, Measured], models: Sequence[ModelFinding], rates: Sequence[Rate]
) -> tuple[ClaimFinding, ...]:
    """A finding for every claim and model, or line of models, that it is about, in the order of the file.

    A claim is about the models that meet its conditions and have its laws, or rows for "statistic".

    Parameters
    ----------
    campaign : whose claims these are.
    measured : what was measured of each model, by `id` of the model.
    models : findings of the models; rates: of all lines over tokens.
    """
    findings = {id(finding.model): finding for finding in models}
    found: list[ClaimFinding] = []
    for claim in campaign.claims:
        concerned = [model for model in campaign.models if claim.concerns(model) and _has(claim, model)]
        if claim.kind == "rate":
            mine = list(_decide_rates(claim, concerned, measured, rates))
        else:
            mine = [_DECIDE[claim.kind](_Case(claim, findings[id(m)], measured[id(m)])) for m in concerned]
        found += mine or [_open(claim, "no model", "no model of the campaign has what the claim is about")]
    return tuple(found)


def _has(claim: Claim, model: Model) -> bool:
    if claim.kind == "statistic":
        return "rows" in model.plan.statistics
    laws = [claim.options[name] for name in ("law", "than") if name in claim.options]
    # outliers need the top alone
    return all(law in model.laws for law in laws)


@dataclass(frozen=True)
class _Case:
    """A claim on one model."""

    claim: Claim
    finding: ModelFinding
    measured: Measured

    @property
    def options(self) -> dict[str, Any]:
        return self.claim.options

    @property
    def freedom(self) -> int:
        return self.measured.draws - 1

    def law(self, name: str) -> LawMeasured | None:
        """The law, or None if it could not be had or there are no spectra."""
        found = self.measured.laws.get(name)
        return None if found is None or found.refusal or not found.ks.size else found

    def without(self, name: str) -> ClaimFinding:
        """The finding where a law is missing."""
        found = self.measured.laws.get(name)
        why = "there are no draws" if not self.measured.draws else "the draws hold no spectra"
        if found is not None and found.refusal:
            why = f"{_law(name)} could not be had: {found.refusal}"
        return _open(self.claim, _subject(self.finding.model), why)

    def conclude(self, found: Estimate, limit: str, judgement: Judgement, reason: str, power: Power) -> ClaimFinding:
        return _conclude(self.claim, _subject(self.finding.model), found, limit, judgement, reason, power)


def _subject(model: Model) -> str:
    return f"{model.group}: {model.title}"


def _conclude(
    claim: Claim, subject: str, found: Estimate, limit: str, judgement: Judgement, reason: str, power: Power
) -> ClaimFinding:
    return ClaimFinding(claim.kind, claim.name, subject, found, limit, judgement.verdict, reason, power)


def _open(claim: Claim, subject: str, why: str) -> ClaimFinding:
    power = Power(None, False, f"could not have failed: {why}")
    return ClaimFinding(claim.kind, claim.name, subject, None, "", "not enough draws", _sentence(why), power)


# -- distances ----------------------------------------------------------------------------------------


def _agreement(case: _Case) -> ClaimFinding:
    name, tolerance = case.options["law"], case.options["tolerance"]
    law = case.law(name)
    if law is None:
        return case.without(name)
    found, slack = estimate(law.ks), case.measured.slack
    judgement = judge(found, case.freedom, high=tolerance, slack=slack)
    reason = f"KS to {_law(name)} is {_shown(found)}{_slack(slack)}, where at most {_plain(tolerance)} is allowed"
    others = [other for other in case.measured.laws if other != name and case.law(other) is not None]
    distances = {other: estimate(case.measured.ks(other)) for other in others}
    failing = {
        other: ks.value
        for other, ks in distances.items()
        if judge(ks, case.freedom, high=tolerance, slack=slack).verdict == "failed"
    }
    power = _agreement_power(judgement, failing, {other: ks.value for other, ks in distances.items()})
    return case.conclude(found, f"KS at most {_plain(tolerance)}", judgement, reason, power)


def _agreement_power(judgement: Judgement, failing: dict[str, float], others: dict[str, float]) -> Power:
    high = judgement.high
    if high is None:
        return Power(None, False, _ONE_DRAW)
    if high >= 1:
        return Power(high, False, "could not have failed: no distance, of 1 at most, would have been detected for sure")
    missed = f"would have missed a mean KS distance below {_plain(high)}"
    if failing:
        return Power(high, True, f"{missed}; {_listed(failing)} would have failed")
    if others:
        return Power(high, False, f"could not have failed: {_listed(others)} would not have failed either; {missed}")
    return Power(high, True, missed)


def _disagreement(case: _Case) -> ClaimFinding:
    name, least = case.options["law"], case.options["at_least"]
    law = case.law(name)
    if law is None:
        return case.without(name)
    found, slack = estimate(law.ks), case.measured.slack
    judgement = judge(found, case.freedom, low=least, slack=slack)
    reason = f"KS to {_law(name)} is {_shown(found)}{_slack(slack)}, where at least {_plain(least)} is claimed"
    low, noise = judgement.low, case.measured.noise
    if low is None or noise is None:
        power = Power(None, False, _ONE_DRAW)
    elif low <= noise:
        text = f"could not have failed: the right law, at the noise of {_plain(noise)}, would not have failed for sure"
        power = Power(low, False, text)
    else:
        text = f"would have missed a mean KS distance above {_plain(low)}"
        power = Power(low, True, f"{text}; the right law, at the noise of {_plain(noise)}, would have failed")
    return case.conclude(found, f"KS at least {_plain(least)}", judgement, reason, power)


def _closer(case: _Case) -> ClaimFinding:
    name, than, factor = case.options["law"], case.options["than"], case.options["factor"]
    for wanted in (name, than):
        if case.law(wanted) is None:
            return case.without(wanted)
    near, far = case.measured.ks(name), case.measured.ks(than)
    found, slack = estimate(far - factor * near), (1 + factor) * case.measured.slack
    judgement = judge(found, case.freedom, low=_ABOVE, slack=slack)
    times = "" if factor == 1 else f"{_plain(factor)} × "
    gap = f"KS to {_law(than)} less {times}KS to {_law(name)}"
    reason = (
        f"{gap} is {_shown(found)}{_slack(slack)}; the distances are {_plain(_mean(far))} and {_plain(_mean(near))}"
    )
    low, noise = judgement.low, case.measured.noise
    if low is None or noise is None:
        power = Power(None, False, _ONE_DRAW)
    else:
        apart = case.measured.distance(name, than)
        exchanged = noise - factor * apart
        text = f"would have missed a gap above {_plain(low)}" if math.isfinite(low) else "would have missed any gap"
        if exchanged <= low:
            other = f"draws of {_law(than)}, at {_plain(exchanged)}, would have failed"
            power = Power(low, True, f"{text}; {other}")
        else:
            other = f"could not have failed: the laws are {_plain(apart)} apart, so that draws of {_law(than)} "
            power = Power(low, False, other + f"would be at {_plain(exchanged)}; {text}")
    return case.conclude(found, "gap above 0", judgement, reason, power)


# -- rates --------------------------------------------------------------------------------------------


def _decide_rates(
    claim: Claim, models: Sequence[Model], measured: Mapping[int, Measured], rates: Sequence[Rate]
) -> Iterator[ClaimFinding]:
    over, law = claim.options["over"], claim.options["law"]
    low, high = claim.options.get("at_least", -math.inf), claim.options.get("at_most", math.inf)
    fitted = fit_rates(models, measured, over)
    mine = [rate for rate in fitted if rate.law == law]
    others = {rate.exponent.value for rate in (*fitted, *rates) if rate.over == over}
    for rate in mine:
        judgement = judge(rate.exponent, rate.freedom, low, high, rate.slack)
        reason = f"exponent {_shown(rate.exponent)}{_slack(rate.slack)} over {len(rate.points)} values of {over}"
        if rate.curved:
            reason += "; the line is curved, so that no exponent describes it"
        power = _rate_power(judgement, low, high, others - {rate.exponent.value})
        limit = "exponent " + _range(low, high)
        yield _conclude(claim, _line(rate), rate.exponent, limit, judgement, reason, power)
    if models and not mine:
        groups = ", ".join(dict.fromkeys(model.group for model in models))
        yield _open(claim, groups, f"no line has distances from {_law(law)} at three values of {over}")


def _rate_power(judgement: Judgement, low: float, high: float, others: set[float]) -> Power:
    if judgement.low is None or judgement.high is None:
        return Power(None, False, _ONE_DRAW)
    detectable, missed = _missed(judgement, low, high, "an exponent")
    known = [
        (0.0, "no convergence"),
        (-1.0, "that of noise"),
        *((value, "as another line has") for value in sorted(others)),
    ]
    failing = next(((value, words) for value, words in known if judgement.fails(value)), None)
    if failing is None:
        text = "could not have failed: neither exponents 0 and −1 nor those of other lines would have been detected"
        return Power(detectable, False, f"{text}; {missed}")
    return Power(detectable, True, f"{missed}; {_plain(failing[0])}, {failing[1]}, would have failed")


def _line(rate: Rate) -> str:
    shared = ", ".join(f"{name} = {value}" for name, value in rate.axes.items() if value is not None)
    places = [place for place, _, _ in rate.points]
    return f"{rate.group}: {rate.over} {places[0]:g} … {places[-1]:g}" + (f", {shared}" if shared else "")


# -- moments ------------------------------------------------------------------------------------------


def _moments(case: _Case) -> ClaimFinding:
    name, level = case.options["law"], case.options["level"]
    law = case.law(name)
    if law is None or not law.orders:
        return (
            case.without(name)
            if law is None
            else _open(case.claim, _subject(case.finding.model), f"no moment of {_law(name)} could be had")
        )
    limit = f"no moment differs at the family-wise level {_plain(level)}"
    tests = _moment_tests(law, level)
    worst = max(tests, key=lambda test: (test.ratio, abs(test.relative.value)))
    order = f"moment {worst.order} is {worst.relative.value:+.3g} (relative) off that of {_law(name)}"
    if worst.relative.error is None:
        judgement = Judgement("not enough draws", None, None)
        return case.conclude(worst.relative, limit, judgement, order, Power(None, False, _ONE_DRAW))
    failed = worst.ratio > 1
    judgement = Judgement("failed" if failed else "held", -math.inf, math.inf)
    errors = f"{worst.ratio * worst.critical:.3g} standard errors, of which {worst.critical:.3g} are allowed"
    detectable = max(test.detectable for test in tests)
    missed = f"would have missed a relative deviation below {_plain(detectable)} of some moment"
    each = ", ".join(f"{_plain(test.detectable)} of moment {test.order}" for test in tests)
    others = [other for other in case.measured.laws if other != name]
    tested = {other: _moment_tests(found, level) for other in others if (found := case.law(other)) and found.orders}
    failing = [other for other, them in tested.items() if any(test.ratio > 1 for test in them)]
    if failing:
        words = " and ".join(f"{_law(other)}" for other in failing)
        power = Power(detectable, True, f"{missed} ({each}); {words} would have failed")
    elif tested:
        words = " and ".join(f"{_law(other)}" for other in tested)
        power = Power(
            detectable, False, f"could not have failed: {words} would not have failed either; {missed} ({each})"
        )
    else:
        power = Power(detectable, True, f"{missed} ({each})")
    return case.conclude(worst.relative, limit, judgement, f"{order}, {errors}", power)


@dataclass(frozen=True)
class _MomentTest:
    """One moment against the law's.

    Attributes
    ----------
    relative : sample over law, less 1; for a law whose moment is 0, the sample itself.
    critical : standard errors that are allowed; ratio: those found over that.
    detectable : relative deviation that would have failed with probability `LEVEL`.
    """

    order: int
    relative: Estimate
    critical: float
    ratio: float
    detectable: float


def _moment_tests(law: LawMeasured, level: float) -> list[_MomentTest]:
    freedom = law.moments.shape[0] - 1
    critical = student(freedom, 1 - level / len(law.orders)) if freedom else math.inf
    found = []
    for k, order in enumerate(law.orders):
        expected = float(law.expected[k])
        relative = estimate((law.moments[:, k] / expected - 1) if expected else law.moments[:, k])
        ratio, detectable = 0.0, math.inf
        if relative.error is not None:
            # equal draws have no spread, and differ by rounding
            allowed = max(critical * relative.error, _ROUNDING)
            ratio = abs(relative.value) / allowed
            detectable = max(noncentrality(freedom, critical) * relative.error, _ROUNDING)
        found.append(_MomentTest(order, relative, critical, ratio, detectable))
    return found


# -- top values and rows ------------------------------------------------------------------------------


def _outliers(case: _Case) -> ClaimFinding:
    name, tolerance = case.options["law"], case.options["tolerance"]
    law = case.law(name)
    if law is None:
        return case.without(name)
    if not law.predicted.size or not case.measured.tops.shape[1]:
        why = law.silence or "the draws do not hold their largest values"
        return _open(case.claim, _subject(case.finding.model), why)
    predicted = float(law.predicted[0])
    tops = case.measured.tops[:, 0]
    found = estimate(tops / predicted - 1)
    judgement = judge(found, case.freedom, -tolerance, tolerance)
    reason = (
        f"the largest squared singular value is {_shown(estimate(tops))}, predicted {_plain(predicted)} "
        f"({law.origins[0]}): {_signed(found)} relative"
    )
    reach = _relative_power(judgement, tolerance, "of the largest value")
    if reach.detectable is not None and reach.could_fail and law.origins[0] != "edge":
        # the alternative: no outlier, the bulk's own edge
        reach = _edge_power(reach, law, predicted, judgement)
    return case.conclude(found, f"relative deviation at most {_plain(tolerance)}", judgement, reason, reach)


def _edge_power(power: Power, law: LawMeasured, predicted: float, judgement: Judgement) -> Power:
    edges = [float(x) for x, origin in zip(law.predicted, law.origins, strict=True) if origin == "edge"]
    if not edges:
        return power
    relative = edges[0] / predicted - 1
    if judgement.fails(relative):
        return Power(
            power.detectable, True, f"{power.text}; without the outlier, at {relative:+.3g}, it would have failed"
        )
    text = f"could not have failed: without the outlier the largest value were {relative:+.3g} off, which"
    return Power(power.detectable, False, f"{text} would not have failed for sure; {power.text}")


def _relative_power(judgement: Judgement, tolerance: float, what: str) -> Power:
    """Of a relative deviation of something positive, which is at least -1."""
    if judgement.high is None:
        return Power(None, False, _ONE_DRAW)
    text = f"would have missed relative deviations {what} below {_plain(judgement.high)}"
    # downwards the deviation is -1 at most
    if judgement.high >= 1:
        return Power(judgement.high, False, f"could not have failed if the value were 0 or twice as large; {text}")
    return Power(judgement.high, True, text)


def _statistic(case: _Case) -> ClaimFinding:
    name = case.options["statistic"]
    measured = case.finding.rows.get(name)
    subject = _subject(case.finding.model)
    title = name.replace("_", " ")
    if measured is None:
        return _open(case.claim, subject, "there are no draws")
    if "prediction" in case.options:
        expected, tolerance = case.finding.expected_rows.get(name), case.options["tolerance"]
        if not expected:
            return _open(case.claim, subject, f"nothing is known of the {title} of independent log-normal entries")
        found = _scaled(measured, expected)
        judgement = judge(found, case.freedom, -tolerance, tolerance)
        reason = f"mean {title} is {_shown(measured)}, predicted {_plain(expected)}: {_signed(found)} relative"
        limit = f"relative deviation at most {_plain(tolerance)}"
        return case.conclude(found, limit, judgement, reason, _relative_power(judgement, tolerance, f"of the {title}"))
    low, high = case.options.get("at_least", -math.inf), case.options.get("at_most", math.inf)
    judgement = judge(measured, case.freedom, low, high)
    power = _statistic_power(judgement, low, high, name, title, case.finding.model)
    limit = f"{title} {_range(low, high)}"
    return case.conclude(measured, limit, judgement, f"mean {title} is {_shown(measured)}", power)


def _statistic_power(judgement: Judgement, low: float, high: float, name: str, title: str, model: Model) -> Power:
    if judgement.low is None or judgement.high is None:
        return Power(None, False, _ONE_DRAW)
    detectable, missed = _missed(judgement, low, high, f"a mean {title}")
    least, most = -math.inf, math.inf
    if name in _SHARES:
        least, most = 1 / model.head.columns, 1.0
    elif name == "log_normaliser_sd":
        least = 0.0
    if judgement.low < least and judgement.high > most:
        return Power(
            detectable, False, f"could not have failed: no value that a {title} can have is detectable; {missed}"
        )
    return Power(detectable, True, missed)


# -- words --------------------------------------------------------------------------------------------


def _missed(judgement: Judgement, low: float, high: float, what: str) -> tuple[float, str]:
    """The detectable value, that above the range if it has an upper end, and both in words."""
    assert judgement.low is not None
    assert judgement.high is not None
    detectable = judgement.high if math.isfinite(high) else judgement.low
    ends = [f"above {_plain(judgement.low)}"] if math.isfinite(judgement.low) else []
    ends += [f"below {_plain(judgement.high)}"] if math.isfinite(judgement.high) else []
    return detectable, f"would have missed {what} {' and '.join(ends) or 'of any value'}"


def _scaled(measured: Estimate, expected: float) -> Estimate:
    """Relative to an expected value, less 1."""
    if measured.error is None or measured.low is None or measured.high is None:
        return Estimate(measured.value / expected - 1, None, None, None)
    ends = sorted([measured.low / expected - 1, measured.high / expected - 1])
    return Estimate(measured.value / expected - 1, measured.error / abs(expected), ends[0], ends[1])


def _mean(values: Any) -> float:
    return math.fsum(values) / len(values)


def _law(name: str) -> str:
    return _LAW_WORDS.get(name, name)


def _listed(distances: Mapping[str, float]) -> str:
    return " and ".join(f"{_law(name)} at {_plain(value)}" for name, value in distances.items())


def _range(low: float, high: float) -> str:
    ends = [f"at least {_plain(low)}"] if math.isfinite(low) else []
    return " and ".join(ends + ([f"at most {_plain(high)}"] if math.isfinite(high) else []))


def _shown(found: Estimate) -> str:
    if found.error is None or found.high is None:
        return f"{_plain(found.value)} (one draw)"
    return f"{_plain(found.value)} ± {_plain(found.high - found.value)}"


def _signed(found: Estimate) -> str:
    margin = "" if found.high is None else f" ± {_plain(found.high - found.value)}"
    return f"{found.value:+.3g}{margin}"


def _slack(slack: float) -> str:
    return f" (and ± {_plain(slack)} of matrix-free estimates)" if slack else ""


def _plain(value: float) -> str:
    return f"{value:.3g}".replace("-", "−") if value < 0 else f"{value:.3g}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


_DECIDE = {
    "agreement": _agreement,
    "disagreement": _disagreement,
    "closer": _closer,
    "moments": _moments,
    "outliers": _outliers,
    "statistic": _statistic,
}
