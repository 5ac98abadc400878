"""Speed of the laws and of the spectrum, as times and as ratios measured in one run; accuracy of the finite-size law.

Claims. 2,000 density points take at most 20 ms from nothing (the law built, certified, evaluated) and 1 ms once it is
built; a million points of the density or of the distribution function take at most 40 times as long as numpy's
closed-form Marchenko-Pastur density on the same grid; ``import gequiv`` takes at most 2.5 times as long as ``import
numpy, scipy.special`` in a fresh interpreter; the spectrum at n = 3000 by the Gram route is at least 2.5 times as fast
as scipy.linalg.svdvals on the same matrix, with the same values within 1e-9. All are medians over repeats; the two
sides of a ratio take turns.

The finite-size law at n = 2048, d_k = 64, beta 0.5 and 1: 400 density points from nothing take at most 0.3 s without a
mask and 5 s under the causal mask. Without a mask the stored density is within 1e-8, relative, of the Dyson equation
solved by Newton's method at points that the law has not seen; under the causal mask it is within 1e-4, relative, of
that of four times as many cells, at the quantiles 0.3, 0.5, 0.7, 0.9, 0.95 and 0.99.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.linalg import svdvals

from gequiv.attention import Attention, ensemble, row_energy
from gequiv.errors import CertificationError
from validation import _common
from validation._common import Claim

HEADS = {
    "orthonormal": Attention(2000, 1000, 1.0),
    "shared": Attention(2000, 1000, 1.0, width=2000),
    "rectangular": Attention(2000, 1000, 1.0, keys=3000, width=1500),
    "hard: two scales, two intervals": Attention(2000, 20, 0.05, width=40),
}
COLD_LIMIT, WARM_LIMIT = 20e-3, 1e-3
MILLION_LIMIT, IMPORT_LIMIT, SPECTRUM_LIMIT = 40.0, 2.5, 2.5
VALUES_LIMIT = 1e-9
FINITE = {f"beta {beta:g}": Attention(2048, 64, beta) for beta in (0.5, 1.0)}
CAUSAL = {f"beta {beta:g}": Attention(2048, 64, beta, mask="causal") for beta in (0.5, 1.0)}
FINITE_LIMIT, CAUSAL_LIMIT = 0.3, 5.0
FINITE_ERROR, CAUSAL_ERROR = 1e-8, 1e-4
FINITE_POINTS, FRESH_POINTS = 400, 200
FINE_CELLS = 320  # 80 by default
LEVELS = (0.3, 0.5, 0.7, 0.9, 0.95, 0.99)


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def processor_seconds(work: Callable[[], Any]) -> float:
    """Processor time of one call: kept beside the wall time, which other programs on the machine stretch."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def medians(repeats: int, *works: Callable[[], Any]) -> list[float]:
    """Median wall time of each, taking turns, after one warm-up call of each."""
    for work in works:
        work()
    times = [[seconds(work) for work in works] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def density_from_nothing(head: Attention, grid: np.ndarray) -> Any:
    """The law, built and evaluated."""
    return head.limit_law().pdf(grid)


def law_from_nothing(repeats: int) -> tuple[list[Claim], dict[str, Any]]:
    """Cold and warm density at 2,000 points."""
    claims, data = [], {}
    for name, head in HEADS.items():
        law = head.limit_law()
        grid = np.linspace(0, law.support()[-1][1], 2002)[1:-1]
        (cold_time,) = medians(repeats, partial(density_from_nothing, head, grid))
        cpu = statistics.median(processor_seconds(partial(density_from_nothing, head, grid)) for _ in range(repeats))
        (warm_time,) = medians(5 * repeats, partial(law.pdf, grid))
        data[name] = {"cold": cold_time, "cold_cpu": cpu, "warm": warm_time, "intervals": len(law.support())}
        for kind, value, limit in (("cold", cold_time, COLD_LIMIT), ("warm", warm_time, WARM_LIMIT)):
            measured, allowed = f"{1e3 * value:.2f} ms", f"{1e3 * limit:g} ms"
            claims.append(Claim(f"2,000 density points, {kind}, {name}", measured, allowed, value <= limit))
    return claims, data


def finite_density_from_nothing(head: Attention, grid: np.ndarray) -> Any:
    """The finite-size law, built and evaluated."""
    _forget()
    return head.finite_law().pdf(grid)


def _forget() -> None:
    """Empty the caches that outlive a law."""
    for function in vars(row_energy).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def finite_law(repeats: int, causal_repeats: int, seed: int) -> tuple[list[Claim], dict[str, Any]]:
    """Cold density of the finite-size law at 400 points, without a mask and causal, and errors of both."""
    claims: list[Claim] = []
    data: dict[str, Any] = {}
    rng = np.random.default_rng(seed)
    cases = [("no mask", name, head, repeats, FINITE_LIMIT) for name, head in FINITE.items()]
    cases += [("causal", name, head, causal_repeats, CAUSAL_LIMIT) for name, head in CAUSAL.items()]
    for mask, name, head, count, limit in cases:
        label = f"{mask}, {name}"
        try:
            law: Any = head.finite_law()
        except CertificationError as error:
            claims.append(Claim(f"finite-size law, {label}", "refused", "certified", False))
            data[label] = {"refused": str(error)}
            continue
        low, high = law.ppf(0.02), law.ppf(0.998)
        grid = np.geomspace(low, high, FINITE_POINTS)
        work = partial(finite_density_from_nothing, head, grid)
        cpu = statistics.median(processor_seconds(work) for _ in range(count))
        time_taken = statistics.median(seconds(work) for _ in range(count))
        if mask == "causal":
            fresh = law.ppf(np.array(LEVELS))
            exact = head.finite_law(cells=FINE_CELLS).pdf(fresh)
            against, allowed = f"{FINE_CELLS} cells", CAUSAL_ERROR
        else:
            fresh = law.ppf(rng.uniform(0.001, 0.999, FRESH_POINTS))
            exact = -law.equation.solve(fresh.astype(np.complex128)).value.imag / np.pi
            against, allowed = f"the equation at {FRESH_POINTS} fresh points", FINITE_ERROR
        errors = np.abs(law.pdf(fresh) / exact - 1)
        worst = float(errors.max())
        claims += [
            Claim(f"finite-size law, {FINITE_POINTS} density points, cold, {label}", f"{time_taken:.2f} s",
                  f"{limit:g} s", time_taken <= limit),
            Claim(f"finite-size law, density against {against}, relative, {label}", f"{worst:.1e}", f"{allowed:g}",
                  worst <= allowed),
        ]  # fmt: skip
        data[label] = {"cold": time_taken, "cold_cpu": cpu, "error": worst}
        if mask == "causal":
            data[label]["errors"] = {f"{level:g}": float(e) for level, e in zip(LEVELS, errors, strict=True)}
    return claims, data


def marchenko_pastur_density(x: np.ndarray, ratio: float, variance: float) -> np.ndarray:
    """The closed form, in numpy."""
    a, b = variance * (1 - np.sqrt(ratio)) ** 2, variance * (1 + np.sqrt(ratio)) ** 2
    density: np.ndarray = np.sqrt(np.maximum((b - x) * (x - a), 0)) / (2 * np.pi * ratio * variance * x)
    return density


def million(repeats: int, points: int) -> tuple[list[Claim], dict[str, Any]]:
    """Density and distribution function at a million points against the closed form of Marchenko–Pastur."""
    claims, data = [], {}
    for name, head in HEADS.items():
        law = head.limit_law()
        variance = head.linear_model().total_variance
        grid = np.linspace(0, law.support()[-1][1], points + 1)[1:]
        closed, pdf, cdf = medians(
            repeats,
            partial(marchenko_pastur_density, grid, 1.0, variance),
            partial(law.pdf, grid),
            partial(law.cdf, grid),
        )
        data[name] = {"closed_form": closed, "pdf": pdf, "cdf": cdf, "points": points}
        for kind, value in (("pdf", pdf), ("cdf", cdf)):
            ratio = value / closed
            statement = f"{points:,} points of {kind}, {name}, over the closed form"
            claims.append(Claim(statement, f"{ratio:.1f} times", f"{MILLION_LIMIT:g} times", ratio <= MILLION_LIMIT))
    return claims, data


def imports(repeats: int) -> tuple[list[Claim], dict[str, Any]]:
    """Import times in fresh interpreters."""
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).rstrip(":")}

    def fresh(modules: str) -> float:
        code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
        command = [sys.executable, "-c", code]
        return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    names = ("numpy, scipy.special", "gequiv")
    for name in names:
        fresh(name)
    times = [[fresh(name) for name in names] for _ in range(repeats)]
    base, ours = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = ours / base
    claim = Claim("import gequiv over import numpy, scipy.special", f"{ratio:.2f} times", f"{IMPORT_LIMIT:g} times",
                  ratio <= IMPORT_LIMIT)  # fmt: skip
    return [claim], {"gequiv": ours, "numpy, scipy.special": base}


def spectrum(repeats: int, n: int, seed: int) -> tuple[list[Claim], dict[str, Any]]:
    """Gram route against a singular value decomposition of the same matrix."""
    head = Attention(n, n // 2, 1.0)
    matrix = ensemble.centred(ensemble.draw_attention(head, np.random.default_rng(seed)))
    kept: dict[str, np.ndarray] = {}

    def gram() -> None:
        kept["gram"] = ensemble.squared_singular_values(matrix)

    def direct() -> None:
        kept["direct"] = svdvals(matrix)[::-1] ** 2

    times = [(seconds(gram), seconds(direct)) for _ in range(repeats)]
    gram_time, direct_time = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = direct_time / gram_time
    difference = float(np.abs(kept["gram"] - kept["direct"]).max())
    claims = [
        Claim(f"spectrum at n = {n}, speed over svdvals", f"{ratio:.2f} times", f"at least {SPECTRUM_LIMIT:g} times",
              ratio >= SPECTRUM_LIMIT),
        Claim(f"spectrum at n = {n}, largest difference of the squared singular values", f"{difference:.1e}",
              f"{VALUES_LIMIT:g}", difference <= VALUES_LIMIT),
    ]  # fmt: skip
    return claims, {"tokens": n, "gram": gram_time, "svdvals": direct_time, "ratio": ratio, "difference": difference}


def main(argv: list[str] | None = None) -> int:
    quick = "n = 1000 for the spectrum, 100,000 points, fewer repeats"
    options = _common.arguments("benchmarks.speed", __doc__ or "", quick=quick).parse_args(argv)
    console = Console(stderr=True)
    claims: list[Claim] = []
    data: dict[str, Any] = {}
    parts: dict[str, Callable[[], tuple[list[Claim], dict[str, Any]]]] = {
        "law": lambda: law_from_nothing(5 if options.quick else 15),
        "finite-size law": lambda: finite_law(*((3, 1) if options.quick else (7, 3)), options.seed),
        "million": lambda: million(3 if options.quick else 7, 100_000 if options.quick else 1_000_000),
        "import": lambda: imports(3 if options.quick else 9),
        "spectrum": lambda: spectrum(3, 1000 if options.quick else 3000, options.seed),
    }
    for name, part in parts.items():
        with console.status(f"measuring: {name}"):
            found, data[name] = part()
        claims += found
    data["load_average"] = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    data["processors"] = os.cpu_count()
    return _common.conclude(_common.folder(options) / "benchmarks.json", __doc__ or "", options, claims, data)


if __name__ == "__main__":
    sys.exit(main())
