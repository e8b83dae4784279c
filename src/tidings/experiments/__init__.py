"""Experiments: the papers' evaluations, run again, one file per paper."""

from tidings.experiments._bounded_delay import Scale, bounded_delay, draw_figures
from tidings.experiments._claims import Claim
from tidings.experiments._fault_tolerance import FaultScale, fault_tolerance
from tidings.experiments._fault_tolerance_figures import draw_fault_tolerance
from tidings.experiments._fifo_ordering import OrderingScale, fifo_ordering
from tidings.experiments._fifo_ordering_statistics import draw_adaptivity
from tidings.experiments._relocation import RelocationScale, draw_relocation, relocation
from tidings.experiments._timeliness import TimelinessScale, draw_timeliness, timeliness

__all__ = [
    "Claim",
    "FaultScale",
    "OrderingScale",
    "RelocationScale",
    "Scale",
    "TimelinessScale",
    "bounded_delay",
    "draw_adaptivity",
    "draw_fault_tolerance",
    "draw_figures",
    "draw_relocation",
    "draw_timeliness",
    "fault_tolerance",
    "fifo_ordering",
    "relocation",
    "timeliness",
]
