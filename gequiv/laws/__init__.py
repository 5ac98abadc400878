"""Spectral laws: the contract, the law of a noisy Gaussian chain, Marchenko–Pastur, singular values."""

from gequiv.laws.base import Certificate, Law
from gequiv.laws.chain import GaussianChainPlusNoise
from gequiv.laws.marchenko_pastur import MarchenkoPastur
from gequiv.laws.singular import SingularValueLaw

__all__ = ["Certificate", "GaussianChainPlusNoise", "Law", "MarchenkoPastur", "SingularValueLaw"]
