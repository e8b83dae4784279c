"""Experiments: the papers' evaluations, run again, one file per paper."""

from tidings.experiments._bounded_delay import Scale, bounded_delay, draw_figures
from tidings.experiments._claims import Claim

__all__ = ["Claim", "Scale", "bounded_delay", "draw_figures"]
