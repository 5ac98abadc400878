"""Parts of a head that are no numbers, in a few words; None where the head has none."""

from __future__ import annotations

from typing import Any

import numpy as np

from gequiv.attention.parameters import Attention


def describe(head: Attention) -> str:
    """The head in one line."""
    parts = [f"{head.tokens} tokens"]
    if head.columns != head.tokens:
        parts.append(f"{head.columns} keys")
    parts.append(f"head width {head.head_dim}")
    if head.width is not None:
        parts.append(f"Gaussian tokens of width {head.width}")
    if head.covariance is not None:
        parts.append(f"{len(head.covariance)} covariance eigenvalue{'s' * (len(head.covariance) > 1)}")
    parts.append(f"β = {head.beta:g}")
    if head.mask is not None:
        parts.append(f"mask {mask_text(head)}")
    if head.bias is not None:
        parts.append(str(bias_text(head)))
    return ", ".join(parts)


def mask_text(head: Attention) -> str | None:
    """The mask's name, or what it is."""
    return None if head.mask is None else head.mask if isinstance(head.mask, str) else _object_text(head.mask)


def bias_text(head: Attention) -> str | None:
    """The ALiBi slope, or what the bias is."""
    if isinstance(head.bias, float):
        return f"ALiBi slope {head.bias:g}"
    return None if head.bias is None else _object_text(head.bias)


def weights_text(head: Attention) -> str | None:
    """Shape of given weights, and what of a covariance, a mean and biases goes with them."""
    weights = head.weights
    if weights is None:
        return None
    covariance = np.asarray(weights.covariance)
    identity = np.ones(weights.width) if covariance.ndim == 1 else np.identity(weights.width)
    parts = {
        f"given, {weights.width} × {weights.head_dim}": True,
        "covariance": np.any(covariance != identity),
        **{name: np.any(getattr(weights, name)) for name in ("mean", "b_Q", "b_K")},
    }
    return ", ".join(name for name, there in parts.items() if there)


def _object_text(value: Any) -> str:
    if callable(value):
        return f"function {getattr(value, '__name__', type(value).__name__)}"
    return repr(value).strip("<>")
