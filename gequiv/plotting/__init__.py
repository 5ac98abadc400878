"""Pictures of laws and of validations: the only package that knows matplotlib, which it imports to draw a figure."""

from gequiv.plotting.figures import density_figure, save_figure, validation_figure
from gequiv.plotting.grid import support_grid

__all__ = ["density_figure", "save_figure", "support_grid", "validation_figure"]
