"""Reference values of the limit law to 40 digits, by a route that shares nothing with the library.

    python tests/reference/generate_limit_law.py [--sets 330] [--workers 2]

writes `limit_law.json` beside this file. The route: the curve

    T = β² (1+u)/u · ∏(1 + u/c_i),  b = T/(T + σ² c (1+u)),  z = (T + b σ² (1-c))/b²,  G = b (1+u)/T,

the last c_i being 1/c, as polynomials in mpmath. The physical sheet is found by continuation: start at large Im z,
where u ≈ β²/z, and follow du/dz down to the real axis with a logarithmic tangent predictor and Newton's method,
shortening the step until prediction and correction agree. Edges are those real critical values of z(u) on one side of
which this density vanishes and on the other not. Moments come from reverting the power series of 1/z in u, with 200
digits.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import pathlib
import random
from typing import Any

import mpmath as mp

DIGITS = 60
MOMENTS = 8
FILE = pathlib.Path(__file__).with_name("limit_law.json")


def multiply(a: list[Any], b: list[Any]) -> list[Any]:
    result = [mp.mpf(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            result[i + j] += x * y
    return result


def add(a: list[Any], b: list[Any]) -> list[Any]:
    size = max(len(a), len(b))
    return [(a[k] if k < len(a) else 0) + (b[k] if k < len(b) else 0) for k in range(size)]


def slope_of(a: list[Any]) -> list[Any]:
    return [k * a[k] for k in range(1, len(a))]


def at(a: list[Any], u: Any) -> Any:
    return mp.polyval(a[::-1], u)


def all_roots(polynomial: list[Any]) -> list[Any]:
    """Roots by Aberth's iteration, started on circles whose radii are the slopes of the Newton polygon."""
    degree = len(polynomial) - 1
    heights = [(k, mp.log(abs(a))) for k, a in enumerate(polynomial) if a != 0]
    hull: list[tuple[int, Any]] = []
    for point in heights:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (point[0] - hull[-2][0]) <= (point[1] - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append(point)
    roots = []
    for (first, top), (second, low) in itertools.pairwise(hull):
        radius = mp.exp((top - low) / (second - first))
        for k in range(second - first):
            roots.append(radius * mp.expjpi(2 * mp.mpf(k) / (second - first) + mp.mpf("0.37") + first))
    slope = slope_of(polynomial)
    for _ in range(500):
        moved = mp.mpf(0)
        for k in range(degree):
            value = at(polynomial, roots[k])
            if value == 0:
                continue
            newton = value / at(slope, roots[k])
            repulsion = sum(1 / (roots[k] - roots[j]) for j in range(degree) if j != k)
            step = newton / (1 - newton * repulsion)
            roots[k] -= step
            moved = max(moved, abs(step / roots[k]))
        if moved < mp.mpf(10) ** -45:
            return roots
    raise ArithmeticError("the roots of the critical polynomial did not settle")


class Curve:
    """z = top/bottom and zG as rational functions of v = u τ²/β² (τ² = β² + σ²)."""

    def __init__(self, case: dict[str, Any]) -> None:
        tokens, keys = case["tokens"], case["keys"] or case["tokens"]
        beta = mp.mpf(case["beta"])
        self.c = mp.mpf(tokens) / keys
        inner = [case["head_dim"]] if case["width"] is None else [case["width"], case["head_dim"], case["width"]]
        ratios = [mp.mpf(d) / tokens for d in inner] + [mp.mpf(keys) / tokens]
        signal = beta**2
        noise = mp.expm1(signal) - signal
        self.mean = signal + noise
        self.share = signal / self.mean
        # T = N (1+u)/u with N = K (1+cu), b = N/M with M = N + σ² c u; then
        # z = M ((1+u) M + σ² (1-c) u)/(u N), and (1+u) M + σ² (1-c) u = (1+cu) (K (1+u) + σ² u)
        k = [signal]
        for ratio in ratios[:-1]:
            k = multiply(k, [mp.mpf(1), self.share / ratio])
        m = add(multiply(k, [mp.mpf(1), self.c * self.share]), [mp.mpf(0), noise * self.c * self.share])
        self.top = multiply(m, add(multiply(k, [mp.mpf(1), self.share]), [mp.mpf(0), noise * self.share]))
        self.bottom = multiply([mp.mpf(0), self.share], k)
        self.weights = [self.share / ratio for ratio in ratios[:-1]]
        self.m = m
        self.start_height = 100 * self.mean
        for ratio in ratios:
            self.start_height *= 1 + 1 / ratio
        self.slope_top, self.slope_bottom = slope_of(self.top), slope_of(self.bottom)

    def newton(self, z: Any, u: Any, digits: int) -> tuple[Any, list[Any]]:
        """Newton's method for top - z bottom = 0 from u to that many digits, and the sizes of its steps."""
        size = len(self.bottom)
        equation = [a - z * self.bottom[k] if k < size else a for k, a in enumerate(self.top)][::-1]
        steps = []
        for _ in range(60):
            value, slope = equation[0], mp.mpf(0)
            for coefficient in equation[1:]:
                slope = slope * u + value
                value = value * u + coefficient
            step = value / slope
            u -= step
            steps.append(abs(step))
            if steps[-1] <= abs(u) * mp.mpf(10) ** -digits:
                break
        return u, steps

    def tangent(self, u: Any) -> Any:
        top, bottom = at(self.top, u), at(self.bottom, u)
        return bottom**2 / (at(self.slope_top, u) * bottom - top * at(self.slope_bottom, u))

    def density(self, x: Any) -> Any:
        """Density at real x by continuation in Im z."""
        x = mp.mpf(x)
        z = mp.mpc(x, self.start_height + 100 * abs(x))
        u, _ = self.newton(z, self.mean / z, 20)
        if abs(u * z / self.mean - 1) > 0.5:
            raise ArithmeticError(f"no start at z = {z}")
        fraction = mp.mpf("0.5")
        while z.imag > 0:
            target = mp.mpc(x, z.imag * fraction)
            if target.imag < abs(x) * mp.mpf(10) ** -25:
                target = mp.mpc(x, 0)
            predicted = u * mp.exp(self.tangent(u) * z / u * mp.log(target / z))  # exact for a power law
            new, steps = self.newton(target, predicted, 25 if target.imag > 0 else DIGITS - 8)
            tiny = abs(u) * mp.mpf(10) ** -20
            good = abs(new - predicted) <= 0.1 * abs(new - u) + tiny
            good = good and (steps[0] <= tiny or len(steps) < 3 or steps[1] <= 0.05 * steps[0])
            if good or (target.imag == 0 and abs(new - u) <= abs(u) * mp.mpf(10) ** -9):
                u, z = new, target
                fraction = max(mp.mpf("0.1"), fraction**2)
            else:
                fraction = mp.sqrt(fraction)
                if fraction > 1 - mp.mpf(10) ** -7:
                    raise ArithmeticError(f"continuation stuck at {mp.nstr(z, 20)}")
        cauchy = self.share * u / at(self.m, u)
        density = -cauchy.imag / mp.pi
        return density if density > mp.mpf(10) ** -30 / self.mean else mp.mpf(0)

    def edges(self) -> list[Any]:
        # top' D - top E with D the distinct factors of the bottom and E/D its logarithmic derivative: no repeated roots
        distinct = []
        for w in self.weights:
            if all(abs(w / other - 1) > mp.mpf(10) ** -30 for other in distinct):
                distinct.append(w)
        product = [mp.mpf(1)]
        for w in distinct:
            product = multiply(product, [mp.mpf(1), w])
        factor, logarithmic = multiply([mp.mpf(0), mp.mpf(1)], product), product
        for w in distinct:
            multiplicity = sum(abs(w / other - 1) < mp.mpf(10) ** -30 for other in self.weights)
            term = [mp.mpf(0), multiplicity * w]
            for other in distinct:
                if other != w:
                    term = multiply(term, [mp.mpf(1), other])
            logarithmic = add(logarithmic, term)
        if self.c == 1:  # top is a square
            top = multiply([1 / mp.sqrt(self.top[0])], self.m)
            critical = add(multiply([2 * v for v in slope_of(top)], factor), [-v for v in multiply(top, logarithmic)])
        else:
            critical = add(multiply(self.slope_top, factor), [-v for v in multiply(self.top, logarithmic)])
        scale = max(abs(v) for v in critical)
        critical = [v / scale for v in critical]
        while abs(critical[-1]) < mp.mpf(10) ** -600:
            critical.pop()
        with mp.workdps(4 * DIGITS):  # roots may lie close together
            roots = all_roots(critical)
        values = []
        for u in roots:
            if abs(mp.im(u)) > abs(mp.re(u)) * mp.mpf(10) ** -20 or abs(at(self.bottom, mp.re(u))) == 0:
                continue
            z = at(self.top, mp.re(u)) / at(self.bottom, mp.re(u))
            if z > self.mean * mp.mpf(10) ** -40:
                values.append(z)
        distinct = []
        for z in sorted(values):
            if not distinct or z > distinct[-1] * (1 + mp.mpf(10) ** -15):
                distinct.append(z)
        edges = [mp.mpf(0)] if self.c == 1 else []
        for k, z in enumerate(distinct):
            below = distinct[k - 1] if k else mp.mpf(0)
            above = distinct[k + 1] if k + 1 < len(distinct) else 2 * z
            left, right = self.density(z - (z - below) / 64), self.density(z + (above - z) / 64)
            if (left == 0) != (right == 0):
                edges.append(z)
        return edges

    def moments(self) -> list[Any]:
        """Coefficients of zG - 1 in 1/z, by reverting the series of 1/z in v."""
        order = MOMENTS + 1

        def inverse(series: list[Any]) -> list[Any]:
            result = [1 / series[0]]
            for k in range(1, order + 1):
                total = sum((series[j] if j < len(series) else 0) * result[k - j] for j in range(1, k + 1))
                result.append(-total / series[0])
            return result

        def cut(series: list[Any]) -> list[Any]:
            return (series + [mp.mpf(0)] * (order + 1))[: order + 1]

        w = cut(multiply(self.bottom, inverse(self.top)))  # 1/z as a series in u, w[0] = 0
        # zG = top/(bottom M) · share · v
        shifted = [b / self.share for b in self.bottom[1:]]
        product = cut(multiply(self.top, inverse(multiply(shifted, self.m))))
        powers = [cut([mp.mpf(1)])]
        for _ in range(order):
            powers.append(cut(multiply(powers[-1], w)))
        # write product = Σ m_k w^k, from the lowest order up
        rest, result = list(product), []
        for k in range(order):
            coefficient = rest[k] / powers[k][k]
            result.append(coefficient)
            rest = [r - coefficient * p for r, p in zip(rest, powers[k], strict=True)]
        return result[1:]


def random_case(source: random.Random) -> dict[str, Any]:
    tokens = int(10 ** source.uniform(3, 5.5))

    def size() -> int:
        return max(2, int(tokens * 10 ** source.uniform(-3, 3)))

    beta = 10 ** source.uniform(-3, 1.41) if source.random() < 0.6 else source.uniform(0.2, 3)
    return {
        "tokens": tokens,
        "head_dim": size() if source.random() < 0.8 else tokens,
        "beta": float(f"{min(beta, 26.0):.6g}"),
        "keys": None if source.random() < 0.5 else size(),
        "width": None if source.random() < 0.5 else size(),
    }


def reference(job: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    seed, case = job
    source = random.Random(seed)
    with mp.workdps(DIGITS):
        curve = Curve(case)
        edges = curve.edges()
        points = []
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            for fraction in (10 ** source.uniform(-3, -1), source.uniform(0.1, 0.9), 0.995):
                x = float(low + (high - low) * mp.mpf(fraction))
                points.append({"x": x, "pdf": mp.nstr(curve.density(x), 40)})
    with mp.workdps(200):
        moments = [mp.nstr(m, 40) for m in Curve(case).moments()]
    return {**case, "edges": [mp.nstr(e, 40) for e in edges], "points": points, "moments": moments}


FIXED = [
    {"tokens": 2000, "head_dim": 1000, "beta": 1.0, "keys": None, "width": None},
    {"tokens": 1000, "head_dim": 1000, "beta": 1.0, "keys": None, "width": None},
    {"tokens": 2000, "head_dim": 64, "beta": 0.5, "keys": None, "width": None},
    {"tokens": 1000, "head_dim": 1, "beta": 0.001, "keys": None, "width": None},
    {"tokens": 1000, "head_dim": 1000000, "beta": 26.0, "keys": None, "width": None},
    {"tokens": 1000, "head_dim": 500, "beta": 1.0, "keys": 1000000, "width": None},
    {"tokens": 1000000, "head_dim": 500, "beta": 1.0, "keys": 1000, "width": None},
    {"tokens": 1001, "head_dim": 500, "beta": 1.0, "keys": 1000, "width": None},
    {"tokens": 1000, "head_dim": 500, "beta": 1.0, "keys": 1001, "width": 1000},
    {"tokens": 2000, "head_dim": 250, "beta": 0.5, "keys": None, "width": 1000},
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=330)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    source = random.Random(20251006)
    cases = FIXED + [random_case(source) for _ in range(arguments.sets - len(FIXED))]
    results = []
    with multiprocessing.Pool(arguments.workers) as pool:
        for k, result in enumerate(pool.imap(reference, list(enumerate(cases))), 1):
            results.append(result)
            print(f"{k}/{len(cases)}", end="\r", flush=True)
    FILE.write_text(json.dumps({"digits": 40, "cases": results}, indent=1) + "\n")
    print(f"{len(results)} parameter sets written to {FILE.name}")


if __name__ == "__main__":
    main()
