"""Placement: the broker at which a publisher should be, found from who receives its events (paper E).

Pure algorithms: POP (`TagWindow`, `ProfileTable`, `walk`), GRAPE (`SessionLog`, `TraceSession`, `evaluate`, `select`),
and ours: by deadlines (`on_time_shares`, `select_on_time`), for all publishers together (`place_jointly`), and with
subscribers that move too (`place_readers`).
docs/reference/placement.md shows them at work.
"""

from tidings.placement._evaluation import Candidates, evaluate, loads_from
from tidings.placement._joint import JointPlan, Service, Stream, place_jointly
from tidings.placement._on_time import Spread, Wanted, on_time_shares, select_on_time
from tidings.placement._readers import Reader, ReaderPlan, Source, place_readers
from tidings.placement._selection import Decision, Metric, select
from tidings.placement._sessions import DEFAULT_TRACED, SessionLog, TraceSession, bit_words, pool
from tidings.placement._tagging import (
    DEFAULT_TRACED_PER_WINDOW,
    DEFAULT_WEIGHT,
    DEFAULT_WINDOW_NS,
    ProfileTable,
    TagWindow,
    running_average,
)
from tidings.placement._twins import PrintedEvaluation
from tidings.placement._walk import Profile, RelocationRequest, next_broker, walk

__all__ = [
    "DEFAULT_TRACED",
    "DEFAULT_TRACED_PER_WINDOW",
    "DEFAULT_WEIGHT",
    "DEFAULT_WINDOW_NS",
    "Candidates",
    "Decision",
    "JointPlan",
    "Metric",
    "PrintedEvaluation",
    "Profile",
    "ProfileTable",
    "Reader",
    "ReaderPlan",
    "RelocationRequest",
    "Service",
    "SessionLog",
    "Source",
    "Spread",
    "Stream",
    "TagWindow",
    "TraceSession",
    "Wanted",
    "bit_words",
    "evaluate",
    "loads_from",
    "next_broker",
    "on_time_shares",
    "place_jointly",
    "place_readers",
    "pool",
    "running_average",
    "select",
    "select_on_time",
    "walk",
]
