"""Simulated spectra against laws: distances with error bars, and the whole experiment with a verdict."""

from gequiv.simulation.choice import LawChoice, choose_law
from gequiv.simulation.comparison import Comparison, Moment, compare, ks_between, laws_distance
from gequiv.simulation.experiment import Outliers, Validation, ValidationInterrupted, validate

__all__ = [
    "Comparison",
    "LawChoice",
    "Moment",
    "Outliers",
    "Validation",
    "ValidationInterrupted",
    "choose_law",
    "compare",
    "ks_between",
    "laws_distance",
    "validate",
]
