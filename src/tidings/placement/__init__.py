"""Placement: the broker at which a publisher should be, found from who receives its events (paper E).

Pure algorithms: POP (`TagWindow`, `ProfileTable`, `walk`), GRAPE (`SessionLog`, `TraceSession`, `evaluate`, `select`),
and ours: by deadlines (`on_time_shares`, `select_on_time`), for all publishers together (`place_jointly`), and with
subscribers that move too (`place_readers`). For drivers that have traces: `Times`, `Traced`, `choose` and `figures_at`;
what they find is a `PlacementPlan`, which `write_plan` and `read_plan` put in a file.
docs/reference/placement.md shows them at work.

Names load on first use: a broker must not load what only the placing of publishers needs.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.placement._decision import (
        Aim,
        Figures,
        Objective,
        Traced,
        choose,
        choose_on_time,
        figures_at,
        loads_at,
        tree_of_use,
    )
    from tidings.placement._defaults import (
        DEFAULT_HYSTERESIS,
        DEFAULT_STAY_NS,
        DEFAULT_TRACED,
        DEFAULT_TRACED_PER_WINDOW,
        DEFAULT_WAIT_NS,
        DEFAULT_WEIGHT,
        DEFAULT_WINDOW_NS,
        Metric,
    )
    from tidings.placement._evaluation import Candidates, evaluate, loads_from
    from tidings.placement._joint import JointPlan, Service, Stream, place_jointly
    from tidings.placement._on_time import Spread, Wanted, on_time_shares, select_on_time
    from tidings.placement._plan import (
        Change,
        Client,
        Expected,
        MadeFrom,
        Move,
        PlacementPlan,
        PlanAim,
        read_plan,
        write_plan,
    )
    from tidings.placement._reach import chance_on_time, reach, saved_in_turn
    from tidings.placement._readers import Reader, ReaderPlan, Source, place_readers
    from tidings.placement._selection import Decision, select
    from tidings.placement._sessions import SessionLog, TraceSession, bit_words, pool
    from tidings.placement._tags import ProfileTable, TagWindow, running_average
    from tidings.placement._times import Scatter, Sums, Times, times_of, times_of_links
    from tidings.placement._twins import PrintedEvaluation
    from tidings.placement._walk import Profile, RelocationRequest, next_broker, walk

__all__ = [
    "DEFAULT_HYSTERESIS",
    "DEFAULT_STAY_NS",
    "DEFAULT_TRACED",
    "DEFAULT_TRACED_PER_WINDOW",
    "DEFAULT_WAIT_NS",
    "DEFAULT_WEIGHT",
    "DEFAULT_WINDOW_NS",
    "Aim",
    "Candidates",
    "Change",
    "Client",
    "Decision",
    "Expected",
    "Figures",
    "JointPlan",
    "MadeFrom",
    "Metric",
    "Move",
    "Objective",
    "PlacementPlan",
    "PlanAim",
    "PrintedEvaluation",
    "Profile",
    "ProfileTable",
    "Reader",
    "ReaderPlan",
    "RelocationRequest",
    "Scatter",
    "Service",
    "SessionLog",
    "Source",
    "Spread",
    "Stream",
    "Sums",
    "TagWindow",
    "Times",
    "TraceSession",
    "Traced",
    "Wanted",
    "bit_words",
    "chance_on_time",
    "choose",
    "choose_on_time",
    "evaluate",
    "figures_at",
    "loads_at",
    "loads_from",
    "next_broker",
    "on_time_shares",
    "place_jointly",
    "place_readers",
    "pool",
    "reach",
    "read_plan",
    "running_average",
    "saved_in_turn",
    "select",
    "select_on_time",
    "times_of",
    "times_of_links",
    "tree_of_use",
    "walk",
    "write_plan",
]

__getattr__, __dir__ = lazily(__name__)
