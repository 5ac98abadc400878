"""Spectra of large matrices: time, memory and accuracy of the Gram route, of float32, and of Lanczos without A.

Claims. The squared singular values of a draw of n = 4096 tokens by the Gram route, drawing included, take at most 4
times as long as one product of two such matrices and one call of scipy.linalg.eigvalsh together (medians, the two sides
take turns). At n = 2048 those of float32 are within 1e-6 of the largest of those of float64. The distribution function
by Lanczos at n = 4096 is within 0.004 of the dense one of the same matrix, at d_k = 64, beta = 0.5 and 1, and at
d_k = 2048, beta = 1. There, and under the causal mask, whose values pile up at zero, it is within the error that it
states. Lanczos at n = 32768, d_k = 64 has a peak of resident memory below 2 GB, which grows from n = 8192 over 16384 by
at most 8 (d_k + probes + 1000) bytes a token and 64 MB; times of a pass are told. The three largest singular values at
n = 8192 are those of a block of more than twice the width within 1e-8; the number of passes is told.

A part is run alone with --only PART; its numbers go to large_matrices_PART.json.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.linalg import eigvalsh

from gequiv.attention import Attention
from gequiv.attention.matrix_free import AttentionOperator
from gequiv.simulation import lanczos, spectral_estimate, top_singular_values
from validation import _common
from validation._common import Claim

Part = tuple[list[Claim], dict[str, Any]]

GRAM_LIMIT = 4.0
SINGLE_LIMIT = 1e-6
KS_LIMIT = 0.004
MEMORY_LIMIT, MEMORY_SLACK = 2e9, 64e6
TOP_LIMIT = 1e-8
PROBES, STEPS = 16, 4
"""Of the passes that are timed."""
CAUSAL = "causal"


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def gram(n: int, repeats: int, seed: int) -> Part:
    """The whole of a draw against a product and an eigenvalue problem of its size."""
    head = Attention(n, 64, 1.0)
    matrix = np.random.default_rng(seed).standard_normal((n, n))
    symmetric = matrix @ matrix.T

    def yardstick() -> None:
        _ = matrix @ matrix
        eigvalsh(symmetric, check_finite=False)

    times = [(seconds(lambda: head.spectrum(seed)), seconds(yardstick)) for _ in range(repeats)]
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    claim = Claim(f"Gram route at n = {n} over product and eigvalsh", f"{ours / theirs:.2f} times",
                  f"{GRAM_LIMIT:g} times", ours <= GRAM_LIMIT * theirs)  # fmt: skip
    return [claim], {"tokens": n, "seconds": times, "spectrum": ours, "product_and_eigvalsh": theirs}


def single(n: int, repeats: int, seed: int) -> Part:
    """float32 against float64."""
    claims, data = [], {}
    heads = {
        "d_k 64, beta 0.5": Attention(n, 64, 0.5),
        "d_k 64, beta 1": Attention(n, 64, 1.0),
        "d_k n/2, beta 1": Attention(n, n // 2, 1.0),
    }
    for name, head in heads.items():
        kept: dict[str, np.ndarray] = {}

        def draw(dtype: Any, head: Attention = head, kept: dict[str, np.ndarray] = kept) -> None:
            kept[dtype] = head.spectrum(seed, dtype=dtype)

        times = [(seconds(lambda: draw("float64")), seconds(lambda: draw("float32"))) for _ in range(repeats)]
        double_time, single_time = (statistics.median(column) for column in zip(*times, strict=True))
        error = float(np.abs(kept["float32"] - kept["float64"]).max() / kept["float64"][-1])
        data[name] = {"tokens": n, "error": error, "float64": double_time, "float32": single_time}
        claims.append(Claim(f"float32 at n = {n}, {name} ({double_time / single_time:.2f} times as fast): error over "
                            "the largest", f"{error:.1e}", f"{SINGLE_LIMIT:g}", error <= SINGLE_LIMIT))  # fmt: skip
    return claims, data


def distance(estimate: lanczos.SpectralEstimate, values: np.ndarray) -> tuple[float, float]:
    """Kolmogorov distance, points being known to the estimate's rounding; and that above its floor."""
    x = np.concatenate([values, np.nextafter(values, -1), estimate.singular_values**2])
    x = np.unique(x[x >= 0])
    high = np.searchsorted(values, x + estimate.rounding, side="right") / len(values)
    low = np.searchsorted(values, x - estimate.rounding, side="left") / len(values)
    found = estimate.cdf(x)
    apart = np.maximum(0, np.maximum(found - high, low - found))
    return float(apart.max()), float(apart[x >= estimate.floor].max())


def distribution(n: int, seed: int) -> Part:
    """Lanczos against the dense spectrum."""
    heads = {
        "d_k 64, beta 0.5": Attention(n, 64, 0.5),
        "d_k 64, beta 1": Attention(n, 64, 1.0),
        "d_k n/2, beta 1": Attention(n, n // 2, 1.0),
        CAUSAL: Attention(n, 64, 1.0, mask="causal"),
    }
    claims: list[Claim] = []
    data: dict[str, Any] = {}
    for name, head in heads.items():
        begin = time.perf_counter()
        estimate = spectral_estimate(head, seed)
        middle = time.perf_counter()
        values = head.spectrum(seed)
        end = time.perf_counter()
        whole, above = distance(estimate, values)
        data[name] = {
            "tokens": n,
            "distance": whole,
            "above_floor": above,
            "error": estimate.error,
            "sampling_error": estimate.sampling_error,
            "truncation": estimate.truncation,
            "unresolved": estimate.unresolved,
            "floor": estimate.floor,
            "split_off": len(estimate.largest),
            "probes": estimate.probes,
            "steps": estimate.steps,
            "seconds": middle - begin,
            "dense_seconds": end - middle,
        }
        if name != CAUSAL:
            # at other sizes than 4096, as of --quick, the sampling error is the same by the default number of probes
            claims.append(Claim(f"distribution function by Lanczos at n = {n}, {name}", f"{whole:.4f}",
                                f"{KS_LIMIT:g}", whole <= KS_LIMIT))  # fmt: skip
        claims.append(Claim(f"the same within its stated error, {name}", f"{whole:.4f}", f"{estimate.error:.4f}",
                            whole <= estimate.error))  # fmt: skip
    return claims, data


def one_pass(n: int, dtype: str, seed: int) -> dict[str, float]:
    """Peak of resident memory and time of a pass; for a fresh process."""
    head = Attention(n, 64, 1.0)
    marks: list[float] = []
    spectral_estimate(head, seed, probes=PROBES, steps=STEPS, dtype=dtype,
                      progress=lambda *_: marks.append(time.perf_counter()))  # fmt: skip
    unit = 1 if sys.platform == "darwin" else 1024
    peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gaps = [after - before for before, after in itertools.pairwise(marks)]
    return {"peak": peak, "seconds": statistics.median(gaps[-(STEPS - 1) :])}


def memory(sizes: tuple[int, ...], seed: int) -> Part:
    """Peaks of fresh processes."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    claims: list[Claim] = []
    data: dict[str, Any] = {}
    for n in sizes:
        data[str(n)] = {}
        for dtype in ("float64", "float32"):
            call = f"print(json.dumps(large_matrices.one_pass({n}, {dtype!r}, {seed})))"
            command = [sys.executable, "-c", f"import json; from validation.benchmarks import large_matrices; {call}"]
            environment = {**os.environ, "PYTHONPATH": path}
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=root)
            data[str(n)][dtype] = json.loads(run.stdout)
    largest = data[str(sizes[-1])]
    times = ", ".join(f"{largest[dtype]['seconds']:.1f} s by {dtype}" for dtype in largest)
    for dtype in ("float64", "float32"):
        peak = largest[dtype]["peak"]
        claims.append(Claim(f"peak of memory at n = {sizes[-1]}, {dtype} (a pass: {times})", f"{peak / 1e9:.2f} GB",
                            f"{MEMORY_LIMIT / 1e9:g} GB", peak <= MEMORY_LIMIT))  # fmt: skip
        for small, large in itertools.pairwise(sizes):
            growth = data[str(large)][dtype]["peak"] - data[str(small)][dtype]["peak"]
            allowed = 8 * (large - small) * (64 + PROBES + 1000) + MEMORY_SLACK
            claims.append(Claim(f"growth of it from n = {small} to {large}, {dtype}", f"{growth / 1e6:.0f} MB",
                                f"{allowed / 1e6:.0f} MB", growth <= allowed))  # fmt: skip
    return claims, data


def top(n: int, k: int, seed: int) -> Part:
    """The largest singular values, their passes and time."""
    head = Attention(n, 64, 1.0)
    passes = 0
    apply = AttentionOperator.gram

    def counted(operator: AttentionOperator, vectors: Any) -> Any:
        nonlocal passes
        passes += 1
        return apply(operator, vectors)

    found: list[np.ndarray] = []
    AttentionOperator.gram = counted  # type: ignore[method-assign]
    try:
        taken = seconds(lambda: found.append(top_singular_values(head, seed, k)))
        needed = passes
    finally:
        AttentionOperator.gram = apply  # type: ignore[method-assign]
    more = top_singular_values(head, seed, 2 * k + 16)[:k]  # of a block of twice the width
    error = float(np.abs(found[0] / more - 1).max())
    claim = Claim(f"{k} largest singular values at n = {n} ({needed} passes, {taken:.1f} s): relative difference",
                  f"{error:.1e}", f"{TOP_LIMIT:g}", error <= TOP_LIMIT)  # fmt: skip
    data = {"tokens": n, "k": k, "passes": needed, "seconds": taken, "difference": error}
    return [claim], {**data, "values": [float(value) for value in found[0]]}


def main(argv: list[str] | None = None) -> int:
    quick = "a quarter of the tokens, fewer repeats"
    parser = _common.arguments("benchmarks.large_matrices", __doc__ or "", quick=quick)
    names = ("gram", "single", "distribution", "memory", "top")
    parser.add_argument("--only", choices=names, action="append", help="run this part alone; may be given again")
    options = parser.parse_args(argv)
    q, seed = options.quick, options.seed
    parts: dict[str, Callable[[], Part]] = {
        "gram": lambda: gram(1024 if q else 4096, 3 if q else 5, seed),
        "single": lambda: single(1024 if q else 2048, 3 if q else 5, seed),
        "distribution": lambda: distribution(1024 if q else 4096, seed),
        "memory": lambda: memory((2048, 4096, 8192) if q else (8192, 16384, 32768), seed),
        "top": lambda: top(2048 if q else 8192, 3, seed),
    }
    console = Console(stderr=True)
    claims: list[Claim] = []
    data: dict[str, Any] = {
        "load_average_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "processors": os.cpu_count(),
    }
    for name in options.only or names:
        with console.status(f"measuring: {name}"):
            found, data[name] = parts[name]()
        claims += found
    stem = "large_matrices" + "".join(f"_{name}" for name in options.only or ())
    return _common.conclude(_common.folder(options) / f"{stem}.json", __doc__ or "", options, claims, data)


if __name__ == "__main__":
    sys.exit(main())
