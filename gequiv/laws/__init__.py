"""Spectral laws: the contract, classical laws, the law of a noisy Gaussian chain, laws from a density or from atoms."""

from gequiv.laws.affine import Affine
from gequiv.laws.arcsine import Arcsine
from gequiv.laws.atomic import Atomic, Empirical
from gequiv.laws.base import Certificate, Law
from gequiv.laws.chain import GaussianChainPlusNoise
from gequiv.laws.compound_free_poisson import CompoundFreePoisson
from gequiv.laws.from_density import FromDensity
from gequiv.laws.gaussian_product import FussCatalan, GaussianProduct
from gequiv.laws.kesten_mckay import KestenMcKay
from gequiv.laws.marchenko_pastur import MarchenkoPastur
from gequiv.laws.pushforward import Inverse, Square, SymmetricRoot
from gequiv.laws.semicircle import Semicircle
from gequiv.laws.singular import SingularValueLaw
from gequiv.laws.uniform import Uniform
from gequiv.laws.wachter import Wachter

__all__ = [
    "Affine",
    "Arcsine",
    "Atomic",
    "Certificate",
    "CompoundFreePoisson",
    "Empirical",
    "FromDensity",
    "FussCatalan",
    "GaussianChainPlusNoise",
    "GaussianProduct",
    "Inverse",
    "KestenMcKay",
    "Law",
    "MarchenkoPastur",
    "Semicircle",
    "SingularValueLaw",
    "Square",
    "SymmetricRoot",
    "Uniform",
    "Wachter",
]
