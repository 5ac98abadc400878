"""What is special to attention: parameters, the linear model, the ensemble, the limit law."""

from gequiv.attention.linear_model import LinearModel
from gequiv.attention.parameters import Attention

__all__ = ["Attention", "LinearModel"]
