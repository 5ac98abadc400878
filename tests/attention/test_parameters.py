"""Validation of the parameters, and what follows from the sizes."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

import gequiv
from gequiv import Attention, ParameterError


def test_defaults_and_sizes():
    head = Attention(tokens=2000, head_dim=1000, beta=1.0)
    assert (head.keys, head.width, head.columns, head.aspect) == (None, None, 2000, 1)
    assert head.inner_dimensions == (1000,)
    cross = Attention(tokens=300, head_dim=64, beta=0.5, keys=200, width=512)
    assert (cross.columns, cross.aspect) == (200, Fraction(3, 2))
    assert cross.inner_dimensions == (512, 64, 512)


def test_frozen_and_comparable():
    head = Attention(10, 5, 1)
    assert head == Attention(tokens=10, head_dim=5, beta=1.0)
    assert hash(head) == hash(Attention(10.0, np.int64(5), np.float64(1)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        head.beta = 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 1}, "tokens must be an integer of at least 2; got 1"),
        ({"tokens": 2.5}, r"tokens must be an integer of at least 2; got 2\.5"),
        ({"tokens": math.nan}, "tokens must be .*; got nan"),
        ({"tokens": math.inf}, "tokens must be .*; got inf"),
        ({"tokens": "10"}, "tokens must be .*; got '10'"),
        ({"tokens": True}, "tokens must be .*; got True"),
        ({"head_dim": 0}, "head_dim must be an integer of at least 1; got 0"),
        ({"head_dim": None}, "head_dim must be"),
        ({"beta": 0}, "beta must be a finite real number above 0; got 0"),
        ({"beta": -1}, "beta must be"),
        ({"beta": math.nan}, "beta must be .*; got nan"),
        ({"beta": 1j}, "beta must be"),
        ({"keys": 0}, "keys must be an integer of at least 2; got 0"),
        ({"width": 0}, "width must be an integer of at least 1; got 0"),
        ({"covariance": [1.0]}, "covariance needs a width"),
        ({"covariance": [], "width": 4}, "covariance must be a non-empty list"),
        ({"covariance": [[1.0]], "width": 4}, "covariance must be a non-empty list"),
        ({"covariance": [1, -1], "width": 4}, "covariance must hold finite eigenvalues"),
        ({"covariance": [0, 0], "width": 4}, "covariance must hold finite eigenvalues"),
        ({"covariance": [math.nan], "width": 4}, "covariance must not contain NaN"),
        ({"covariance": ["a"], "width": 4}, "covariance must be real numbers"),
    ],
)
def test_bad_parameters(changes, message):
    arguments = {"tokens": 100, "head_dim": 10, "beta": 1.0, **changes}
    with pytest.raises(ParameterError, match=message):
        Attention(**arguments)


def test_errors_are_value_errors():
    assert issubclass(ParameterError, ValueError)
    assert issubclass(gequiv.CertificationError, ArithmeticError)


def test_package_exports():
    for name in gequiv.__all__:
        assert getattr(gequiv, name) is not None
    assert set(gequiv.__all__) <= set(dir(gequiv))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = gequiv.nonsense
