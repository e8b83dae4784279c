"""Experiments: the papers' evaluations, run again, one file per paper."""

from tidings.experiments._all import EXPERIMENTS, Evaluation, Experiment, reproduce_all
from tidings.experiments._bounded_delay import Scale, bounded_delay, draw_figures
from tidings.experiments._claims import Claim
from tidings.experiments._fault_tolerance import FaultScale, draw_fault_tolerance, fault_tolerance
from tidings.experiments._fifo_ordering import OrderingScale, fifo_ordering
from tidings.experiments._fifo_ordering_statistics import draw_adaptivity
from tidings.experiments._headlines import Headline, Verdict, judge
from tidings.experiments._page import check_page, verdicts, write_page
from tidings.experiments._relocation import RelocationScale, draw_relocation, relocation
from tidings.experiments._timeliness import TimelinessScale, draw_scatter, draw_timeliness, timeliness

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Evaluation",
    "Experiment",
    "FaultScale",
    "Headline",
    "OrderingScale",
    "RelocationScale",
    "Scale",
    "TimelinessScale",
    "Verdict",
    "bounded_delay",
    "check_page",
    "draw_adaptivity",
    "draw_fault_tolerance",
    "draw_figures",
    "draw_relocation",
    "draw_scatter",
    "draw_timeliness",
    "fault_tolerance",
    "fifo_ordering",
    "judge",
    "relocation",
    "reproduce_all",
    "timeliness",
    "verdicts",
    "write_page",
]
