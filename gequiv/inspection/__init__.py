"""Real heads: what is random in an attention matrix, and what is not."""

from gequiv.inspection.arrays import inspect_attention
from gequiv.inspection.models import inspect_model
from gequiv.inspection.report import HeadReport, OutlyingDirection, Report

__all__ = ["HeadReport", "OutlyingDirection", "Report", "inspect_attention", "inspect_model"]
