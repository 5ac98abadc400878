"""Dyson equations: the weighted Gaussian chain plus noise, its equation and its law."""

from gequiv.dyson.chain_equation import ChainEquation, ChainSolution, Status
from gequiv.dyson.law import WeightedChainPlusNoise

__all__ = ["ChainEquation", "ChainSolution", "Status", "WeightedChainPlusNoise"]
