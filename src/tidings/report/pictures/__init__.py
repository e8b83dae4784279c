"""Pictures of an overlay, as SVG or PNG: as it is, and before and after a plan."""

from tidings.report.pictures._overlay import draw_placement
from tidings.report.pictures._picture import check_format, draw, positions_of

__all__ = ["check_format", "draw", "draw_placement", "positions_of"]
