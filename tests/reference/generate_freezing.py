"""Reference values of rows as a random energy model, by another rule than the library's, in 25 digits.

    python tests/reference/generate_freezing.py

writes `freezing.json` beside this file, in minutes. With w = e^{beta g}, L(t) = E e^{-tw} and n keys,

    participation = n ∫ t E[w² e^{-tw}] L(t)^{n-1} dt,    log_normaliser = ∫ (e^{-t n E w} - L(t)^n) dt/t .

Outer integral: Gauss-Legendre panels in log t of width one, 10 and 12 nodes. Inner: Gauss-Legendre panels of g of width
1/2 (the library has the trapezoidal rule for both), as many nodes. Both node counts are asserted to agree to 1e-13.
"""

from __future__ import annotations

import json
from pathlib import Path

import mpmath as mp

CASES = [(40, "0.75"), (1000, "2.5"), (10**12, "4")]


def nodes(count: int) -> list[tuple[mp.mpf, mp.mpf]]:
    """Gauss-Legendre on [0, 1]."""
    found = []
    for k in range(count):
        x = mp.cos(mp.pi * (k + mp.mpf(3) / 4) / (count + mp.mpf(1) / 2))
        for _ in range(8):
            before, here = mp.mpf(1), x
            for j in range(1, count):
                before, here = here, ((2 * j + 1) * x * here - j * before) / (j + 1)
            slope = count * (x * here - before) / (x * x - 1)
            x -= here / slope
        found.append(((1 + x) / 2, 1 / ((1 - x * x) * slope * slope)))
    return found


def values(keys: int, beta: mp.mpf, count: int) -> tuple[mp.mpf, mp.mpf]:
    """(participation, log_normaliser)."""
    rule = nodes(count)
    points = [(j + x) / 2 for j in range(-30, 50) for x, _ in rule]
    masses = [w / 2 * mp.npdf(g) for (_, w), g in zip(rule * 80, points, strict=True)]
    entries = [mp.exp(beta * g) for g in points]
    mean = keys * mp.exp(beta**2 / 2)
    low, high = -int(beta**2 + mp.log(keys) + 24), int(7 * beta + 5)
    share = drift = mp.mpf(0)
    for panel in range(low, high):
        for x, w in rule:
            t = mp.exp(panel + x)
            # 1 - L with its own digits, for the power
            missing = second = mp.mpf(0)
            for entry, mass in zip(entries, masses, strict=True):
                load = t * entry
                missing -= mp.expm1(-load) * mass
                second += load * load * mp.exp(-load) * mass
            logs = mp.log1p(-missing)
            if (keys - 1) * logs < -80:  # and so for all higher t
                return share, drift
            share += w * keys * second * mp.exp((keys - 1) * logs)
            drift += w * (mp.exp(-mean * t) - mp.exp(keys * logs))
    raise ArithmeticError("the range of t ends too early")


def main() -> None:
    mp.mp.dps = 25
    cases = []
    for keys, text in CASES:
        first, found = (values(keys, mp.mpf(text), count) for count in (10, 12))
        assert all(abs(a - b) < mp.mpf("1e-13") * abs(b) for a, b in zip(first, found, strict=True)), (first, found)
        cases.append(
            {
                "name": f"{keys} keys, beta {text}",
                "keys": keys,
                "beta": float(text),
                "participation": mp.nstr(found[0], 15),
                "log_normaliser": mp.nstr(found[1], 15),
            }
        )
    target = Path(__file__).with_name("freezing.json")
    target.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
