"""Pictures of laws and of validations: the only package that knows matplotlib, which it imports to draw a figure."""

from gequiv.plotting.figures import density_figure, save_figure, validation_figure
from gequiv.plotting.grid import support_grid
from gequiv.plotting.inspection_figures import head_figure, inspection_figure
from gequiv.plotting.inspection_page import write_inspection
from gequiv.plotting.temperature_figure import temperature_figure

__all__ = [
    "density_figure",
    "head_figure",
    "inspection_figure",
    "save_figure",
    "support_grid",
    "temperature_figure",
    "validation_figure",
    "write_inspection",
]
