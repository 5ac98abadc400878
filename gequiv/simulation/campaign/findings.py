"""What an analysed campaign found, in plain numbers: what tables and pages show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gequiv._checks import Array
from gequiv.simulation.campaign.model import Campaign, Model, Scalar

Verdict = Literal["held", "failed", "not enough draws"]
LEVEL = 0.95
"""Coverage of all confidence intervals, and the probability with which a detectable deviation is detected."""


@dataclass(frozen=True)
class Estimate:
    """A mean over draws with its confidence interval (Student, coverage `LEVEL`).

    Attributes
    ----------
    value : the mean.
    error : standard error; None with one draw.
    low, high : ends of the interval; None with one draw.
    """

    value: float
    error: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class DrawRow:
    """One draw against one law; a row of results.csv.

    Attributes
    ----------
    model, index, seed : the draw.
    law : name in the campaign file.
    ks, wasserstein : distances, as `gequiv.compare` has them; None where the law could not be had.
    largest : largest squared singular value.
    """

    model: Model
    index: int
    seed: int
    law: str
    ks: float | None
    wasserstein: float | None
    largest: float | None


@dataclass(frozen=True)
class MomentRow:
    """One moment of a model's draws beside a law's: sample mean, its error over draws, z = (sample - law)/error."""

    order: int
    sample: float
    law: float
    error: float | None
    z: float | None


@dataclass(frozen=True)
class OutlierRow:
    """A predicted top value beside the drawn ones, in squared singular values.

    Attributes
    ----------
    rank : 1 for the largest value.
    predicted : location; origin : what it belongs to, "edge" for the bulk's own largest value.
    measured : mean over draws.
    """

    rank: int
    predicted: float
    origin: str
    measured: Estimate


@dataclass(frozen=True)
class LawFinding:
    """A model against one law.

    Attributes
    ----------
    law : name in the campaign file.
    refusal : why the law could not be had; then all else is None or empty.
    ks, wasserstein : means over draws.
    ks_pooled : distance of all draws pooled; to 2e-6 where they have more than 2^19 values.
    moments, outliers : rows.
    grid, density : the law's density on the histogram's axis; see `ModelFinding`. NaN where it is infinite.
    atom : the law's weight at 0, which neither density nor histogram shows.
    note : what was special about the law, such as a number of norm nodes that it does not choose itself.
    outliers_refusal : why no top values are predicted; None where they are, or for a law that has none.
    """

    law: str
    refusal: str | None
    ks: Estimate | None = None
    wasserstein: Estimate | None = None
    ks_pooled: float | None = None
    moments: tuple[MomentRow, ...] = ()
    outliers: tuple[OutlierRow, ...] = ()
    grid: Array | None = None
    density: Array | None = None
    atom: float = 0.0
    note: str | None = None
    outliers_refusal: str | None = None


@dataclass(frozen=True)
class ModelFinding:
    """What was found of one model.

    Attributes
    ----------
    model : the model.
    draws : number of draws that were there, of ``len(model.seeds)``.
    laws : one a law, in the order of the model.
    noise : sampling noise of KS, None with one draw or without spectra.
    edges, heights : histogram of the singular values (not squared: square roots) of all draws as a density, (bins + 1,)
        and (bins,); None without spectra. Laws' ``grid``/``density`` are on the same axis of singular values.
    rows : name of a row statistic -> estimate over draws of its mean over rows; "log_normaliser_sd" for the spread.
    expected_rows : name of a row statistic -> value for independent log-normal entries, where there is one.
    estimate_error : largest 99 % sampling error of matrix-free distribution functions; None for dense draws.
    zeros : share of the values that are 0 but for rounding; they are not in the histogram, which integrates to less.
    """

    model: Model
    draws: int
    laws: tuple[LawFinding, ...]
    noise: float | None
    edges: Array | None
    heights: Array | None
    rows: dict[str, Estimate]
    expected_rows: dict[str, float]
    estimate_error: float | None = None
    zeros: float = 0.0


@dataclass(frozen=True)
class Rate:
    """KS ∝ n^exponent by least squares of log KS on log n over single draws; see `gequiv.simulation.campaign.rates`.

    Attributes
    ----------
    group, law, over : which models, which law, which axis.
    axes : what the line's models have in common, as written in the file.
    points : (n, mean KS, standard error or None) of each model.
    exponent : with its confidence interval.
    curved : whether a quadratic term in log n is significant at 1 - `LEVEL`, so that no exponent describes the line.
    freedom : degrees of freedom of the exponent's interval.
    slack : what sampling errors of matrix-free spectra may add to or take from the exponent; not in the interval.
    """

    group: str
    law: str
    over: str
    axes: dict[str, Scalar]
    points: tuple[tuple[float, float, float | None], ...]
    exponent: Estimate
    curved: bool
    freedom: float = math.nan
    slack: float = 0.0


@dataclass(frozen=True)
class Power:
    """What a claim's test could have seen.

    Attributes
    ----------
    detectable : true value of the tested quantity, the nearest to what is claimed, that would have been called failed
        with probability `LEVEL`; None where no error bar exists.
    could_fail : whether the test could have failed under some alternative that the campaign knows.
    text : in words.
    """

    detectable: float | None
    could_fail: bool
    text: str


@dataclass(frozen=True)
class ClaimFinding:
    """One claim on one model or one line of models.

    Attributes
    ----------
    kind, name : of the claim.
    subject : the model or line in words.
    measured : the tested quantity.
    limit : what it is held against, in words with its number.
    verdict : "held", "failed", or "not enough draws".
    reason : a sentence with the numbers.
    power : what the test could have seen.
    """

    kind: str
    name: str
    subject: str
    measured: Estimate | None
    limit: str
    verdict: Verdict
    reason: str
    power: Power


@dataclass(frozen=True)
class Analysis:
    """Everything that a report shows.

    Attributes
    ----------
    campaign : the campaign.
    rows : one a draw and law, in the order of the file.
    models, rates, claims : in the order of the file.
    missing : draws that are not there yet.
    damaged : result files that were found damaged and not used.
    """

    campaign: Campaign
    rows: tuple[DrawRow, ...]
    models: tuple[ModelFinding, ...]
    rates: tuple[Rate, ...]
    claims: tuple[ClaimFinding, ...]
    missing: int
    damaged: int
