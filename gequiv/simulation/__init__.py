"""Simulated spectra against laws: distances with error bars, and the whole experiment with a verdict."""

from gequiv.simulation.choice import LawChoice, choose_law
from gequiv.simulation.comparison import Comparison, Moment, compare, ks_between, laws_distance, sampling_noise
from gequiv.simulation.experiment import Outliers, Validation, ValidationInterrupted, validate
from gequiv.simulation.lanczos import SpectralEstimate, spectral_cdf, spectral_estimate, top_singular_values

__all__ = [
    "Comparison",
    "LawChoice",
    "Moment",
    "Outliers",
    "SpectralEstimate",
    "Validation",
    "ValidationInterrupted",
    "choose_law",
    "compare",
    "ks_between",
    "laws_distance",
    "sampling_noise",
    "spectral_cdf",
    "spectral_estimate",
    "top_singular_values",
    "validate",
]
