"""Free convolutions of every kind against matrices in general position, at n = 1000.

Claim. For every one of 15 laws built with gequiv.free and gequiv.laws the Kolmogorov-Smirnov distance to simulated
eigenvalues is at most .01, mean over draws. Sums, among them two of no rational R-transform, eigenvalues in noise, a
density given as a function and the exact cusp of -1 and 1 in a semicircle of variance 1; compound free Poisson with
jumps of both signs; products, among them one with a symmetric factor and a multiplicative power; rectangular sums,
among them one of twice as many rows as columns; a power; a compression that leaves an atom; four operations in a row.

Simulated. Each law twice: by `gequiv.free.check`, which draws the matrices that the law is made of, and by hand, in
this file, from Gaussian matrices and Haar rotations, with other matrices than gequiv's where there is a choice (for
the power 2 the sum of two matrices, not the corner of a larger one). A multiplicative power, and a product with a
symmetric factor, which squares the other one, have no matrix in gequiv and are drawn by hand only.

Run. python -m validation.free_convolutions: one to two minutes.

Results. results/free_convolutions.json: for every law its representation, the seconds from nothing to the finished
law, support, atoms, and both comparisons (distances of every draw, mean, standard error). The figure shows the density
over the eigenvalues drawn by hand.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from gequiv import free
from gequiv.errors import ParameterError
from gequiv.laws import (
    Arcsine,
    Atomic,
    CompoundFreePoisson,
    Empirical,
    FromDensity,
    FussCatalan,
    MarchenkoPastur,
    Semicircle,
    Uniform,
    Wachter,
)
from gequiv.laws.base import Law
from gequiv.plotting import support_grid
from gequiv.simulation import Comparison, compare
from validation import _common
from validation._common import Claim

Draw = Callable[[int, np.random.Generator], np.ndarray]

LIMIT = 0.01
BINS, POINTS = 70, 900
HEADROOM = 1.45
SIGNALS = (-3.2, -3.0, -2.9, -1.1, -0.9, -0.8, -0.7, 0.9, 1.0, 1.2, 1.3, 1.4, 3.4, 3.5, 5.8, 6.0)
PARABOLA = FromDensity(lambda x: 0.75 * (1 - x * x), (-1, 1))


# -- matrices ---------------------------------------------------------------------------------------------------------


def wigner(n: int, rng: np.random.Generator, variance: float = 1.0) -> np.ndarray:
    """A symmetric Gaussian matrix with eigenvalues of that variance."""
    entries = rng.standard_normal((n, n))
    return (entries + entries.T) * np.sqrt(variance / (2 * n))


def covariance(n: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """X Xᵀ/columns for n rows of independent standard entries."""
    entries = rng.standard_normal((n, columns))
    return entries @ entries.T / columns


def frame(rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Orthonormal columns in general position."""
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    return q * np.sign(np.diag(r))


def turned(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A matrix of these eigenvalues in general position."""
    q = frame(values.size, values.size, rng)
    return (q * values) @ q.T


def quantiles(law: Law, n: int) -> np.ndarray:
    """n equally spaced quantiles: the eigenvalues of an ingredient."""
    values: np.ndarray = law.ppf((np.arange(n) + 0.5) / n)
    return values


def between(values: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """√A B √A for diagonal A."""
    roots = np.sqrt(values)
    return roots[:, None] * matrix * roots


def squared(matrix: np.ndarray) -> np.ndarray:
    """Squared singular values, ascending."""
    return np.sort(np.linalg.svd(matrix, compute_uv=False)) ** 2


def _compound(n: int, rng: np.random.Generator) -> np.ndarray:
    jumps = quantiles(Atomic([-1, 2]), round(1.5 * n))
    entries = rng.standard_normal((n, jumps.size))
    return np.linalg.eigvalsh((entries * jumps) @ entries.T / n)


def _wachter(n: int, rng: np.random.Generator) -> np.ndarray:
    first, second = 1.5 * covariance(n, round(1.5 * n), rng), 2 * covariance(n, 2 * n, rng)
    inverse = np.linalg.inv(np.linalg.cholesky(first + second))
    root = np.linalg.cholesky(inverse @ first @ inverse.T)
    return np.linalg.eigvalsh(root.T @ covariance(n, 2 * n, rng) @ root)


def _tall(n: int, rng: np.random.Generator) -> np.ndarray:
    values = np.sqrt(quantiles(Atomic([0, 1, 4], [0.6, 0.25, 0.15]), n))[::-1]  # from row n/2 on they are 0
    noise = rng.normal(0, np.sqrt(0.1 / (n // 2)), (n, n // 2))
    return np.linalg.eigvalsh(_square(np.diag(values)[:, : n // 2] + noise))


def _wide(n: int, rng: np.random.Generator) -> np.ndarray:
    first = np.hstack([np.diag(np.sqrt(quantiles(Atomic([1, 4]), n))), np.zeros((n, n))])
    second = (frame(n, n, rng) * np.sqrt(quantiles(Uniform(1, 2), n))) @ frame(2 * n, n, rng).T
    return np.linalg.eigvalsh(_square(first + second))


def _square(matrix: np.ndarray) -> np.ndarray:
    return matrix @ matrix.T


def _compressed(n: int, rng: np.random.Generator) -> np.ndarray:
    values = quantiles(Atomic([-1, 0, 2], [0.25, 0.6, 0.15]), round(n / 0.7))
    q = frame(values.size, n, rng)
    return np.linalg.eigvalsh((q.T * values) @ q)


def _deep(n: int, rng: np.random.Generator) -> np.ndarray:
    size = round(n / 0.75)
    root = np.linalg.cholesky(np.diag(quantiles(Uniform(1, 2), size)) + wigner(size, rng, 0.1))
    q = frame(size, n, rng)
    corner = q.T @ (root.T @ covariance(size, 4 * size, rng) @ root) @ q
    return np.linalg.eigvalsh(corner + np.diag(quantiles(Atomic([-2, 2]), n)))


def _fuss_catalan(n: int, rng: np.random.Generator) -> np.ndarray:
    first, second, third = (rng.standard_normal((n, n)) / np.sqrt(n) for _ in range(3))
    return squared(first @ second @ third)


def _added(first: Law, second: Law) -> Draw:
    """Eigenvalues of a diagonal matrix plus one in general position."""
    return lambda n, rng: np.linalg.eigvalsh(np.diag(quantiles(first, n)) + turned(quantiles(second, n), rng))


def _in_noise(law: Law, variance: float) -> Draw:
    return lambda n, rng: np.linalg.eigvalsh(np.diag(quantiles(law, n)) + wigner(n, rng, variance))


# -- laws -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A law and its eigenvalues drawn by hand; roots: the figure shows their square roots."""

    title: str
    build: Callable[[], Law]
    draw: Draw
    roots: bool = False


CASES = {
    "semicircle + Marchenko-Pastur": Case(
        "Wigner ⊞ Wishart",
        lambda: Semicircle(1) + MarchenkoPastur(0.5),
        lambda n, rng: np.linalg.eigvalsh(covariance(n, 2 * n, rng) + wigner(n, rng)),
    ),
    "uniform + arcsine": Case(
        "uniform ⊞ arcsine", lambda: Uniform(-1, 1) + Arcsine(0, 2), _added(Uniform(-1, 1), Arcsine(0, 2))
    ),
    "cusp": Case(
        "±1 ⊞ semicircle: exact cusp", lambda: Atomic([-1, 1]) + Semicircle(1), _in_noise(Atomic([-1, 1]), 1.0)
    ),
    "empirical + noise": Case(
        "16 eigenvalues in noise", lambda: Empirical(SIGNALS) + Semicircle(0.1), _in_noise(Empirical(SIGNALS), 0.1)
    ),
    "density + atoms": Case(
        "¾(1 − x²) ⊞ atoms at 0, 3", lambda: PARABOLA + Atomic([0, 3]), _added(Atomic([0, 3]), PARABOLA)
    ),
    "compound free Poisson": Case("free Poisson of jumps −1, 2", lambda: CompoundFreePoisson(1.5, [-1, 2]), _compound),
    "Wachter x Marchenko-Pastur": Case("Wachter ⊠ Wishart", lambda: Wachter(1.5, 2) * MarchenkoPastur(0.5), _wachter),
    "Fuss-Catalan": Case("Fuss–Catalan 3, roots", lambda: FussCatalan(3), _fuss_catalan, roots=True),
    "symmetric factor": Case(
        "uniform ⊠ semicircle",
        lambda: Uniform(0.1, 4) * Semicircle(1),
        lambda n, rng: np.linalg.eigvalsh(between(quantiles(Uniform(0.1, 4), n), wigner(n, rng))),
    ),
    "multiplicative power": Case(
        "uniform, ⊠ power 2",
        lambda: free.multiplicative_power(Uniform(1, 3), 2),
        lambda n, rng: np.linalg.eigvalsh(
            between(quantiles(Uniform(1, 3), n), turned(quantiles(Uniform(1, 3), n), rng))
        ),
    ),
    "signal in noise, ratio 2": Case(
        "signal in noise, ratio 2",
        lambda: free.rectangular(Atomic([0, 1, 4], [0.6, 0.25, 0.15]), noise_variance=0.1, ratio=2),
        _tall,
    ),
    "rectangular sum, ratio 1/2": Case(
        "rectangular sum, ratio ½",
        lambda: free.rectangular(Atomic([1, 4]), Uniform(1, 2), ratio=0.5),
        _wide,
    ),
    "power": Case("uniform, ⊞ power 2", lambda: free.power(Uniform(-1, 1), 2), _added(Uniform(-1, 1), Uniform(-1, 1))),
    "compression": Case(
        "compression by 0.7",
        lambda: free.compression(Atomic([-1, 0, 2], [0.25, 0.6, 0.15]), 0.7),
        _compressed,
    ),
    "four operations": Case(
        "⊞, ⊠, compression, ⊞",
        lambda: free.compression((Uniform(1, 2) + Semicircle(0.1)) * MarchenkoPastur(0.25), 0.75) + Atomic([-2, 2]),
        _deep,
    ),
}


# -- the experiment ---------------------------------------------------------------------------------------------------


def distance(comparison: Comparison | None) -> str:
    """Mean over draws and its standard error, as tables show it."""
    if comparison is None:
        return "none"
    error = "" if comparison.ks_error is None else f" ± {comparison.ks_error:.4f}"
    return f"{comparison.ks_mean:.4f}{error}"


def summary(comparison: Comparison | None) -> dict[str, Any] | None:
    """Distances, ready for JSON."""
    if comparison is None:
        return None
    return {key: value for key, value in comparison.to_dict().items() if key != "moments"}


def described(law: Law, seconds: float) -> dict[str, Any]:
    """What the result file holds of a law."""
    return {
        "law": repr(law),
        "seconds_to_build": round(seconds, 3),
        "support": [[float(end) for end in interval] for interval in law.support()],
        "atoms": [list(atom) for atom in law.atoms()],
    }


def panel(axis: Any, law: Law, spectra: Sequence[np.ndarray], title: str, *, text: str = "", roots: bool = False,
          others: Sequence[tuple[Law, dict[str, Any]]] = ()) -> None:  # fmt: skip
    """Density over a histogram of draws. Atoms are named and left out of it; roots: of the square roots of all."""
    if roots:
        law = law.singular_values()
        others = [(other.singular_values(), style) for other, style in others]
        spectra = [np.sqrt(np.maximum(spectrum, 0.0)) for spectrum in spectra]
    values = np.concatenate(spectra)
    ends = [end for interval in law.support() for end in interval]
    low, high = min(*ends, *(a for a, _ in law.atoms())), max(*ends, *(a for a, _ in law.atoms()))
    total, reach = values.size, max(abs(low), abs(high))
    for location, _ in law.atoms():
        values = values[np.abs(values - location) > 1e-6 * reach]
    bins = np.linspace(low, high, BINS + 1)
    heights = np.histogram(values, bins)[0] / (total * (bins[1] - bins[0]))
    axis.stairs(heights, bins, fill=True, color=_common.SOFT)
    for shown, style in [(law, {"color": _common.LAW}), *others]:
        grid = np.union1d(support_grid(shown, POINTS), np.linspace(low, high, 201))  # its middle is the cusp's place
        for a, b in shown.support():
            x = np.concatenate([[a], grid[(grid > a) & (grid < b)], [b]])
            y = shown.pdf(x)
            axis.plot(x, np.where(np.isfinite(y), y, np.nan), **{"linewidth": 1.4, **style})
    margin = 0.03 * (high - low)
    axis.set_xlim(low - margin, high + margin)
    axis.set_ylim(0, HEADROOM * heights.max())
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    axis.set_title(title)
    lines = [*([text] if text else []), *(f"atom {weight:.2f} at {location:g}" for location, weight in law.atoms())]
    axis.text(0.98, 0.97, "\n".join(lines), transform=axis.transAxes, ha="right", va="top", fontsize=8,
              color=_common.INK)  # fmt: skip


def measure(case: Case, n: int, draws: int, seed: int) -> tuple[Law, dict[str, Any], list[np.ndarray], list[Any]]:
    """The law, its record, eigenvalues drawn by hand, and the comparisons with gequiv's draws and with these."""
    begun = time.perf_counter()
    law = case.build()
    seconds = time.perf_counter() - begun
    first, second = np.random.default_rng(seed).spawn(2)
    spectra = [case.draw(n, child) for child in second.spawn(draws)]
    by_hand = compare(law, spectra)
    try:
        by_gequiv = free.check(law, n, draws, first)
    except ParameterError:  # no natural matrix
        by_gequiv = None
    record = {**described(law, seconds), "check": summary(by_gequiv), "by_hand": summary(by_hand)}
    return law, record, spectra, [by_gequiv, by_hand]


def figure(path: Path, found: dict[str, Any], n: int, draws: int) -> None:
    """A panel for each law."""
    plt = _common.pyplot()
    fig, axes = plt.subplots(3, 5, figsize=(12.5, 6.6))
    fig.subplots_adjust(wspace=0.1, hspace=0.5)
    for axis, (name, (law, _, spectra, (_, by_hand))) in zip(axes.flat, found.items(), strict=True):
        case = CASES[name]
        panel(axis, law, spectra, case.title, text=f"KS {by_hand.ks_mean:.4f}", roots=case.roots)
    handles = [plt.Rectangle((0, 0), 1, 1, color=_common.SOFT), plt.Line2D([], [], color=_common.LAW)]
    labels = [f"eigenvalues, n = {n}, {draws} draws", "density of the free convolution"]
    fig.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 0.0), ncols=2)
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    options = _common.arguments("free_convolutions", __doc__ or "", quick="n = 300, looser limits").parse_args(argv)
    n, draws, limit = (300, 2, 3 * LIMIT) if options.quick else (1000, 3, LIMIT)
    found: dict[str, Any] = {}
    with _common.progress(Console(stderr=True)) as bar:
        for name in bar.track(CASES, description="laws"):
            found[name] = measure(CASES[name], n, draws, options.seed)
    claims = [
        Claim(
            f"{name}, {record['seconds_to_build']:.2f} s: KS, gequiv's draws / by hand",
            f"{distance(by_gequiv)} / {distance(by_hand)}",
            f"{limit:g}",
            all(comparison is None or comparison.ks_mean <= limit for comparison in (by_gequiv, by_hand)),
        )
        for name, (_, record, _, (by_gequiv, by_hand)) in found.items()
    ]
    path = _common.folder(options) / "free_convolutions.json"
    figure(path.with_suffix(".png"), found, n, draws)
    data = {"n": n, "draws": draws, "laws": {name: record for name, (_, record, _, _) in found.items()}}
    return _common.conclude(path, __doc__ or "", options, claims, data)


if __name__ == "__main__":
    sys.exit(main())
