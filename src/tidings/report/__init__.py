"""Reports: what people look at. Tables for the terminal and pictures of the overlay."""

from tidings.report._demo import print_demo
from tidings.report._overlay import draw_placement
from tidings.report._picture import check_format, draw
from tidings.report._tables import print_summary

__all__ = ["check_format", "draw", "draw_placement", "print_demo", "print_summary"]
