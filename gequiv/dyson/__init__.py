"""Dyson equations: chains and profiles of Gaussian products plus noise, their equations and their laws."""

from gequiv.dyson.chain_equation import ChainEquation, ChainSolution
from gequiv.dyson.continuation import Status
from gequiv.dyson.law import WeightedChainPlusNoise
from gequiv.dyson.profile import Component, ProfileEquation, ProfileSolution, solve
from gequiv.dyson.profile_law import ProfileLaw

__all__ = [
    "ChainEquation",
    "ChainSolution",
    "Component",
    "ProfileEquation",
    "ProfileLaw",
    "ProfileSolution",
    "Status",
    "WeightedChainPlusNoise",
    "solve",
]
