"""Scheduling: what a link sends next, by what it is worth to whom and how soon it will be worthless (paper C).

Pure algorithms: figures of events and paths in, a choice out; time is an argument. `success_probability` to `ebpc`
measure many events at once, a `Strategy` says what counts, `queue_for` makes the output queue of a link, and the
compiled figures of one event (`benefit`, `deletion_time`) serve loops that keep their queues themselves.
docs/reference/scheduling.md shows them at work.

Names load on first use: who only names a strategy must not load the compiler.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.scheduling._deferred import MOST_DEFERRED, Arrival, Columns, DeferredQueue
    from tidings.scheduling._entry import Deleted, OutputQueue, Reason, Waiting
    from tidings.scheduling._kernels import (
        HOPELESS_QUANTILE,
        NORMAL_TABLE,
        NORMAL_TABLE_ERROR,
        benefit,
        deletion_time,
        expiry_time,
        normal_cdf,
        remaining_lifetime,
        tabulated_benefit,
        tabulated_normal_cdf,
    )
    from tidings.scheduling._lane import TURNS
    from tidings.scheduling._layout import Board, Pairs, Paths, Slots, empty_board
    from tidings.scheduling._measures import (
        allowed_delay_s,
        ebpc,
        expected_benefit,
        postponed_benefit,
        postponing_cost,
        success_probability,
    )
    from tidings.scheduling._queues import DEFAULT_MAX_QUEUED, LinkQueue, prepare, queue_for
    from tidings.scheduling._scan import choose
    from tidings.scheduling._strategies import (
        BOLD_EPSILON,
        FIFO,
        PAPER_EPSILON,
        RL,
        STRATEGIES,
        TRIAGE,
        Strategy,
        strategy,
    )
    from tidings.scheduling._tournament import TIE

__all__ = [
    "BOLD_EPSILON",
    "DEFAULT_MAX_QUEUED",
    "FIFO",
    "HOPELESS_QUANTILE",
    "MOST_DEFERRED",
    "NORMAL_TABLE",
    "NORMAL_TABLE_ERROR",
    "PAPER_EPSILON",
    "RL",
    "STRATEGIES",
    "TIE",
    "TRIAGE",
    "TURNS",
    "Arrival",
    "Board",
    "Columns",
    "DeferredQueue",
    "Deleted",
    "LinkQueue",
    "OutputQueue",
    "Pairs",
    "Paths",
    "Reason",
    "Slots",
    "Strategy",
    "Waiting",
    "allowed_delay_s",
    "benefit",
    "choose",
    "deletion_time",
    "ebpc",
    "empty_board",
    "expected_benefit",
    "expiry_time",
    "normal_cdf",
    "postponed_benefit",
    "postponing_cost",
    "prepare",
    "queue_for",
    "remaining_lifetime",
    "strategy",
    "success_probability",
    "tabulated_benefit",
    "tabulated_normal_cdf",
]

__getattr__, __dir__ = lazily(__name__)
