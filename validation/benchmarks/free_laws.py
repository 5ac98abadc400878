"""Laws of free sums and products, by gequiv and by freealg (Ameli et al.): error and time side by side.

    python -m validation.benchmarks.free_laws [--repeats N] [--json PATH]

freealg is an optional extra: pip install -e '.[comparison]'. Without it its columns stay empty. Nothing is claimed and
no limit is set: the exit code is 1 only where the reference file is missing.

Error: largest |density - reference| over the points of tests/reference/free_laws.json (40 digits) that keep a hundredth
of their interval away from its edges, over the largest of these densities. For both packages the points are evaluated
amid 2,000 others, evenly spaced over the support. Time: from nothing, the law built and 2,000 points evaluated, the
median over repeats, the two packages taking turns.

What freealg is asked. Where it has the law in its catalogue (free Lévy laws, a discrete law times Marchenko-Pastur,
Fuss-Catalan), that: it solves for the Stieltjes transform at x + i eta, which blurs it over eta. It has no free
convolution of two given laws, so that for the other products its `AlgebraicForm` fits a polynomial P(z, m) = 0 of the
right degrees. Its way is to fit the spectrum of a matrix; here it is given the exact transform, which this script finds
from the curve derived by hand, and the exact support. Once at its default eta, once at the best of four smaller ones,
picked with the reference in hand on a sparse grid, which also compiles what freealg compiles: its times are warm in
that respect. A law that takes more than two seconds is timed once.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from rich.console import Console
from rich.table import Table

from gequiv import free
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws import Atomic, MarchenkoPastur, Semicircle
from gequiv.laws.base import Law
from validation import _common

REFERENCE = Path(__file__).resolve().parents[2] / "tests" / "reference" / "free_laws.json"
POINTS, SPARSE = 2000, 100
SLOW = 2.0  # seconds beyond which one run is enough
BETTER = 0.25  # of largest times median error at the default offset, for another to be worth a column
WRONG = 0.01  # of the largest density: no longer a question of digits
MARGIN = 0.0099  # of an interval, at either end
OFFSETS = (1e-6, 1e-8, 1e-10, 1e-12)
FAILURES = (ArithmeticError, ValueError, TypeError, IndexError, RuntimeError, np.linalg.LinAlgError)

Work = Callable[[np.ndarray], Any]
Density = Callable[[np.ndarray, list[tuple[float, float]], float | None], Any]

IRRATIONAL, EXCESS = math.sqrt(0.3), math.e - 2
SIX = [(1 / 2, 1.0), (1 / 3, 2.0), (2.0, 1 / 2), (3 / 4, 1 / 3), (1 / 5, 3.0), (3 / 2, 1 / 4)]  # ratio, variance


# --- what freealg is asked -----------------------------------------------------------------------------------------


def free_levy(poisson: list[tuple[float, float]], semicircle: float) -> Density:
    """Free sum of MP(c, v) and a semicircle: a compound free Poisson law of jumps cv at rates 1/c, plus noise."""
    jumps = [c * v for c, v in poisson]
    rates = np.array([1 / c for c, _ in poisson])

    def density(x: np.ndarray, support: list[tuple[float, float]], eta: float | None) -> Any:
        from freealg.distributions import FreeLevy

        law = FreeLevy(jumps, rates / rates.sum(), rates.sum(), sigma=math.sqrt(semicircle))
        return law.density(x, **_offset(eta))

    return density


def discrete_times_mp(locations: np.ndarray, ratio: float) -> Density:
    """Equal atoms times MP(c)."""

    def density(x: np.ndarray, support: list[tuple[float, float]], eta: float | None) -> Any:
        from freealg.distributions import DeformedMarchenkoPastur

        weights = np.full(locations.size, 1 / locations.size)
        return DeformedMarchenkoPastur(locations, weights, c=ratio).density(x, **_offset(eta))

    return density


def fuss_catalan(x: np.ndarray, support: list[tuple[float, float]], eta: float | None) -> Any:
    """MP(1) times MP(1)."""
    from freealg.distributions import FussCatalan

    return FussCatalan(2).density(x, **_offset(eta))


def _offset(eta: float | None) -> dict[str, float]:
    return {} if eta is None else {"eta": eta}


def fitted(ratios: list[float], noise: float = 0.0, ratio: float = 0.0) -> Density:
    """Product of MP(c), then rectangular noise of the first ratio: a polynomial fitted to its exact transform."""
    t = Polynomial([0.0, 1.0])
    if noise:
        rest = list(ratios)
        rest.remove(ratio)
        inner = reduce(lambda product, c: product * (1 + c * t), rest, Polynomial([1.0]))
        left, right = inner * (1 + t) + noise * t, inner * (1 + ratio * t) + ratio * noise * t
        above, below, under = left * right, inner * t, right
    else:
        under = reduce(lambda product, c: product * (1 + c * t), ratios, Polynomial([1.0]))
        above, below = (1 + t) * under, t

    def density(x: np.ndarray, support: list[tuple[float, float]], eta: float | None) -> Any:
        from freealg import AlgebraicForm

        centre = 0.5 * (support[0][0] + support[-1][1])
        options = {} if eta is None else {"delta": eta}
        form = AlgebraicForm(
            partial(_minus_cauchy, above, below, under, centre),
            support=support,
            stieltjes_opt={},
            inv_stieltjes_opt=options,
        )
        form.fit(deg_m=above.degree(), deg_z=max(under.degree(), 1))
        return form.density(x)

    return density


def _minus_cauchy(above: Polynomial, below: Polynomial, under: Polynomial, centre: float, z: Any) -> np.ndarray:
    """-G on the curve z = above(t)/below(t), G = t/under(t), by Newton's method along the ray from infinity."""
    z = np.asarray(z, dtype=np.complex128)
    slope, slope_below = above.deriv(), below.deriv()
    t = np.zeros_like(z)
    for factor in np.geomspace(1e3, 1.0, 80):
        point = centre + factor * (z - centre)
        t = 1 / point if factor == 1e3 else t
        for _ in range(6):
            value = above(t) - point * below(t)
            t = t - value / (slope(t) - point * slope_below(t))
    g = t / under(t)
    if not (np.abs(above(t) / below(t) / z - 1).max() < 1e-10 and (g.imag * z.imag <= 1e-12).all()):
        raise ArithmeticError("the exact transform was not found")
    return -g


# --- the cases -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A law of the reference file, what gequiv is asked and what freealg is asked, in which way."""

    name: str
    text: str
    ours: Callable[[], Law]
    theirs: Density
    way: str


def cases() -> list[Case]:
    half, one = MarchenkoPastur(1 / 2), MarchenkoPastur(1)
    irrational = MarchenkoPastur(IRRATIONAL)
    integers = np.arange(1.0, 61.0)
    fit = "fit to exact G"
    return [
        Case("sc_mp", "SC(1) ⊞ MP(½)", lambda: free.additive(Semicircle(), half),
             free_levy([(1 / 2, 1.0)], 1.0), "FreeLevy"),
        Case("mp_mp", "MP(½) ⊠ MP(½)", lambda: free.multiplicative(half, half), fitted([1 / 2, 1 / 2]), fit),
        Case("mp1_mp1", "MP(1) ⊠ MP(1)", lambda: free.multiplicative(one, one), fuss_catalan, "FussCatalan"),
        Case("mp_mp_noise", "MP(½) ⊠ MP(½), noise .3",
             lambda: free.rectangular(free.multiplicative(half, half), noise_variance=0.3, ratio=1 / 2),
             fitted([1 / 2, 1 / 2], 0.3, 1 / 2), fit),
        Case("mp3_noise", "MP(½) ⊠ MP(½) ⊠ MP(½), noise .3",
             lambda: free.rectangular(free.multiplicative(half, half, half), noise_variance=0.3, ratio=1 / 2),
             fitted([1 / 2, 1 / 2, 1 / 2], 0.3, 1 / 2), fit),
        Case("six_mps", "free sum of six MP(c, v)",
             lambda: free.additive(*(MarchenkoPastur(c, v) for c, v in SIX)), free_levy(SIX, 0.0), "FreeLevy"),
        Case("mp_atoms", "MP(½) ⊠ 60 atoms", lambda: free.multiplicative(half, Atomic(integers)),
             discrete_times_mp(integers, 1 / 2), "DeformedMarchenkoPastur"),
        Case("irrational", "MP(√.3) ⊞ SC(e-2)", lambda: free.additive(irrational, Semicircle(EXCESS)),
             free_levy([(IRRATIONAL, 1.0)], EXCESS), "FreeLevy"),
        Case("irrational_product", "MP(√.3) ⊠ MP(½), noise e-2",
             lambda: free.rectangular(free.multiplicative(irrational, half), noise_variance=EXCESS, ratio=IRRATIONAL),
             fitted([IRRATIONAL, 1 / 2], EXCESS, IRRATIONAL), fit),
    ]  # fmt: skip


# --- measuring -----------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """Largest and median error and the seconds of one package in one way; `failure` where there are none."""

    error: float | None = None
    median: float | None = None
    seconds: float | None = None
    eta: float | None = None
    failure: str | None = None

    def shown(self) -> tuple[str, str]:
        if self.failure is not None or self.error is None or self.median is None or self.seconds is None:
            return "none", ""
        details = [] if self.eta is None else [f"η {self.eta:.0e}"]
        if self.error > 1e3 * self.median:
            details.append(f"median {self.median:.0e}")
        where = f" ({', '.join(details)})" if details else ""
        taken = f"{self.seconds:.1f} s" if self.seconds >= 1 else f"{1e3 * self.seconds:.0f} ms"
        return f"{self.error:.0e}{where}", taken

    def verdict(self) -> str | None:
        """What went wrong, if anything."""
        if self.failure is not None:
            return self.failure
        if self.error is None or self.median is None or self.error <= WRONG:
            return None
        return f"off by {self.error:.0e} of the largest density (median {self.median:.0e}); no error was raised"


class Reference:
    """The interior points of one law and the density there, and 2,000 points over the support."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.support = [(float(low), float(high)) for low, high in record["edges"]]
        points = [(float(point["x"]), float(point["pdf"])) for point in record["points"]]
        self.x, self.pdf = np.array([point for point in points if self._inside(point[0])]).T

    def _inside(self, x: float) -> bool:
        return any(low + MARGIN * (high - low) <= x <= high - MARGIN * (high - low) for low, high in self.support)

    def grid(self, count: int) -> np.ndarray:
        """So many points over the support, and the points of the reference."""
        low, high = self.support[0][0], self.support[-1][1]
        return np.union1d(low + (high - low) * (np.arange(count) + 0.5) / count, self.x)

    def errors(self, work: Work, count: int) -> tuple[np.ndarray, float]:
        """At the reference's points, amid the others, relative to the largest density; seconds."""
        x = self.grid(count)
        begin = time.perf_counter()
        values = np.asarray(work(x), dtype=np.float64)
        taken = time.perf_counter() - begin
        values = values[np.searchsorted(x, self.x)]
        if not np.isfinite(values).all():
            raise ArithmeticError("a density is not finite")
        return np.abs(values - self.pdf) / self.pdf.max(), taken


def ours_from_nothing(case: Case, x: np.ndarray) -> Any:
    """gequiv's law, built and evaluated."""
    return case.ours().pdf(x)


def theirs_from_nothing(case: Case, reference: Reference, eta: float | None, x: np.ndarray) -> Any:
    """freealg's law, built and evaluated."""
    return case.theirs(x, reference.support, eta)


def measure(case: Case, reference: Reference, repeats: int, comparison: bool) -> dict[str, Measured]:
    """gequiv, freealg at its default offset, and at the best of others where that is better."""
    ours = partial(ours_from_nothing, case)
    attempt(ours, reference, SPARSE)
    works: dict[str, tuple[Work, float | None]] = {"gequiv": (ours, None)}
    found: dict[str, Measured] = {}
    if comparison:
        at = {eta: partial(theirs_from_nothing, case, reference, eta) for eta in (None, *OFFSETS)}
        tried = {eta: attempt(work, reference, SPARSE) for eta, work in at.items()}
        # by the largest error and the median: of a law that is wrong at one point the others still get better
        known = {eta: one.error * one.median for eta, one in tried.items() if one.error and one.median}
        best = min(known, key=known.__getitem__, default=None)
        works["freealg"] = at[None], None
        if best is not None and known[best] < BETTER * known.get(None, math.inf):
            works["freealg, best"] = at[best], best
    for name, (work, eta) in works.items():
        found[name] = attempt(work, reference, POINTS, eta)
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, (work, _) in works.items():
            if (found[name].seconds or math.inf) < SLOW:
                times[name].append(attempt(work, reference, POINTS).seconds or math.inf)
    for name, taken in times.items():
        if taken:
            found[name].seconds = statistics.median(taken)
    return found


def attempt(work: Work, reference: Reference, count: int, eta: float | None = None) -> Measured:
    """Errors and seconds, or why there are none."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            errors, taken = reference.errors(work, count)
    except (CertificationError, ParameterError, *FAILURES) as error:
        return Measured(failure=f"{type(error).__name__}: {error}")
    return Measured(float(errors.max()), float(np.median(errors)), taken, eta)


def version_of_freealg() -> str | None:
    """None where it is not installed."""
    try:
        return importlib.metadata.version("freealg")
    except importlib.metadata.PackageNotFoundError:
        return None


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m validation.benchmarks.free_laws",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the time is the median (default 5)")
    parser.add_argument("--json", type=Path, default=None, metavar="PATH", help="write the figures there")
    options = parser.parse_args(argv)
    if not REFERENCE.exists():
        print(f"no {REFERENCE.name}: run python tests/reference/generate_free_laws.py", file=sys.stderr)
        return 1
    records = {record["name"]: record for record in json.loads(REFERENCE.read_text(encoding="utf-8"))["cases"]}
    version = version_of_freealg()
    table = Table(title=f"gequiv {_common.environment()['gequiv']} and freealg {version or '(not installed)'}")
    for column in ("law", "gequiv: error", "time", "freealg: way", "error, its η", "time", "error, best η", "time"):
        table.add_column(column)
    rows, notes = [], []
    console = Console(stderr=True)
    for case in cases():
        with console.status(f"measuring: {case.text}"):
            found = measure(case, Reference(records[case.name]), max(1, options.repeats), version is not None)
        way = case.way if version else "not installed"
        cells = [cell for one in found.values() for cell in one.shown()]
        rest = cells[2:] if len(cells) != 4 else [*cells[2:], "no better", ""]
        table.add_row(case.text, *cells[:2], way, *rest)
        verdicts = {name: one.verdict() for name, one in found.items()}
        notes += [f"{case.text}, {name}: {verdict}" for name, verdict in verdicts.items() if verdict]
        row = {name: asdict(one) for name, one in found.items()}
        rows.append({"law": case.text, "case": case.name, "freealg_way": way, **row})
    shown = Console()
    if not shown.is_terminal:
        shown = Console(width=180)
    shown.print(table)
    for note in notes:
        shown.print(f"not done: {note}", soft_wrap=True, markup=False)
    if version:
        shown.print(
            "freealg has no free convolution of two given laws: the fits are given the exact transform and support, "
            "which gequiv has to find.",
            soft_wrap=True,
        )
    if options.json is not None:
        environment = {**_common.environment(), "freealg": version, "platform": platform.platform()}
        _common.write_json(options.json, {"points": POINTS, "environment": environment, "cases": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
