"""Simulated spectra against laws: distances with error bars, and the whole experiment with a verdict."""

from gequiv.simulation.comparison import Comparison, Moment, compare, ks_between
from gequiv.simulation.experiment import Outliers, Validation, ValidationInterrupted, validate

__all__ = [
    "Comparison",
    "Moment",
    "Outliers",
    "Validation",
    "ValidationInterrupted",
    "compare",
    "ks_between",
    "validate",
]
