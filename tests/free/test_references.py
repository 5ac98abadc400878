"""Free convolutions against the 40-digit references of tests/reference/generate_free_laws.py."""

from __future__ import annotations

import functools
import json
import math
import pathlib
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from gequiv import free, laws

FILE = pathlib.Path(__file__).parents[1] / "reference" / "free_laws.json"
CASES = {case["name"]: case for case in json.loads(FILE.read_text())["cases"]}

MP, SC, Atomic = laws.MarchenkoPastur, laws.Semicircle, laws.Atomic
ROOT, REST = math.sqrt(0.3), math.e - 2


@functools.cache
def half_squared():
    return free.multiplicative(MP(0.5), MP(0.5))


BUILD = {
    "sc_mp": lambda: free.additive(SC(variance=1), MP(ratio=0.5)),
    "mp_mp": half_squared,
    "mp1_mp1": lambda: free.multiplicative(MP(1), MP(1)),
    "mp_mp_noise": lambda: free.rectangular(half_squared(), noise_variance=0.3, ratio=0.5),
    "mp3_noise": lambda: free.rectangular(
        free.multiplicative(MP(0.5), MP(0.5), MP(0.5)), noise_variance=0.3, ratio=0.5
    ),
    "mp_mp_sc": lambda: free.additive(half_squared(), SC(0.25)),
    "six_mps": lambda: free.additive(
        MP(0.5, 1), MP(1 / 3, 2), MP(2, 0.5), MP(0.75, 1 / 3), MP(0.2, 3), MP(1.5, 0.25)
    ),
    "mp_atoms": lambda: free.multiplicative(MP(0.5), Atomic(range(1, 61))),
    "irrational": lambda: free.additive(MP(ROOT), SC(REST)),
    "irrational_product": lambda: free.rectangular(
        free.multiplicative(MP(ROOT), MP(0.5)), noise_variance=REST, ratio=ROOT
    ),
    "atom_sum": lambda: free.additive(Atomic([0, 1], [0.8, 0.2]), Atomic([0, 1], [0.8, 0.2])),
    "mp2_mp2": lambda: free.multiplicative(MP(2), MP(1.5)),
    "compound": lambda: laws.CompoundFreePoisson(0.5, [1, 5], [0.3, 0.7]),
    "power": lambda: free.power(Atomic([-1, 2], [0.5, 0.5]), 2.5),
    "kernel_two_intervals": lambda: free.multiplicative(Atomic([1, 10]), MP(0.05)),
    "cubic_cusp_near": lambda: free.additive(Atomic([-1, 1]), SC(0.9)),
}  # fmt: skip


def exact(text):
    if "/" not in text:
        return mp.mpf(text)
    value = Fraction(text)
    return mp.mpf(value.numerator) / value.denominator


@functools.cache
def law_of(name):
    return BUILD[name]()


def test_every_case_is_here():
    assert set(BUILD) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_density(name):
    """1e-11 relative; next to an edge the last digit of the edge itself moves the density by more."""
    law, case = law_of(name), CASES[name]
    edges = [float(exact(end)) for interval in case["edges"] for end in interval]
    x = np.array([point["x"] for point in case["points"]])
    reference = [exact(point["pdf"]) for point in case["points"]]
    assert len(x) > 20
    error = np.array([float(abs(mp.mpf(float(value)) / want - 1))
                      for value, want in zip(law.pdf(x), reference, strict=True)])  # fmt: skip
    distance = np.min(np.abs(x[:, None] - np.array(edges)), axis=1)
    parameters = 4e-16 * max(abs(e) for e in edges)  # decimal fractions are not floats
    assert (error <= 1e-13 + parameters / distance).all(), (name, x[np.argmax(error)], error.max())
    assert (error <= 1e-11).all() or (distance[error > 1e-11] < 2e-6 * (edges[-1] - edges[0])).all()


@pytest.mark.parametrize("name", CASES)
def test_support_and_atoms(name):
    law, case = law_of(name), CASES[name]
    assert len(law.support()) == len(case["edges"])
    for interval, want in zip(law.support(), case["edges"], strict=True):
        for end, text in zip(interval, want, strict=True):
            assert abs(mp.mpf(end) - exact(text)) <= 2e-15 * max(1, abs(exact(text)))
    assert len(law.atoms()) == len(case["atoms"])
    for (location, weight), (where, much) in zip(law.atoms(), case["atoms"], strict=True):
        assert location == float(exact(where))
        assert weight == pytest.approx(float(exact(much)), abs=2e-16)
    if hasattr(law, "certificate"):
        assert law.certificate.mass_error < 1e-13
        assert law.certificate.half_plane > 0
    outside = np.array([point["x"] for point in case["outside"]])
    assert law.pdf(outside).tolist() == [0.0] * outside.size
    beyond = [np.nextafter(end, side * math.inf) for a, b in law.support() for end, side in ((a, -1), (b, 1))]
    assert law.pdf(beyond).tolist() == [0.0] * len(beyond)


@pytest.mark.parametrize("name", CASES)
def test_cauchy_transform(name):
    law, case = law_of(name), CASES[name]
    for point in case["outside"]:
        value = law.cauchy(point["x"])
        assert value.imag == 0
        assert abs(mp.mpf(float(value.real)) - exact(point["cauchy"])) <= 1e-12 * abs(exact(point["cauchy"]))
    for point in case["complex"]:
        value, want = law.cauchy(complex(*point["z"])), mp.mpc(*map(exact, point["cauchy"]))
        assert abs(mp.mpc(complex(value)) - want) <= 1e-13 * abs(want)


@pytest.mark.parametrize("name", CASES)
def test_moments(name):
    law, case = law_of(name), CASES[name]
    for k, text in enumerate(case["moments"], 1):
        size = law.moment(k + k % 2) ** (k / (k + k % 2))
        assert abs(law.moment(k) - float(exact(text))) <= 2e-14 * size
