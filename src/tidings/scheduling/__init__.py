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
    from tidings.scheduling._choosing import TIE
    from tidings.scheduling._deferred import MOST_DEFERRED, Arrival, Columns, DeferredQueue
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
    from tidings.scheduling._measures import (
        allowed_delay_s,
        ebpc,
        expected_benefit,
        postponed_benefit,
        postponing_cost,
        success_probability,
    )
    from tidings.scheduling._queues import DEFAULT_MAX_QUEUED, LinkQueue, prepare, queue_for
    from tidings.scheduling._strategies import BOLD_EPSILON, PAPER_EPSILON, STRATEGIES, Strategy, strategy
    from tidings.scheduling._waiting import Deleted, OutputQueue, Reason, Waiting

__all__ = [
    "BOLD_EPSILON",
    "DEFAULT_MAX_QUEUED",
    "HOPELESS_QUANTILE",
    "MOST_DEFERRED",
    "NORMAL_TABLE",
    "NORMAL_TABLE_ERROR",
    "PAPER_EPSILON",
    "STRATEGIES",
    "TIE",
    "TURNS",
    "Arrival",
    "Columns",
    "DeferredQueue",
    "Deleted",
    "LinkQueue",
    "OutputQueue",
    "Reason",
    "Strategy",
    "Waiting",
    "allowed_delay_s",
    "benefit",
    "deletion_time",
    "ebpc",
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

__getattr__, __dir__ = lazily(
    __name__,
    {
        "BOLD_EPSILON": "_strategies",
        "DEFAULT_MAX_QUEUED": "_queues",
        "HOPELESS_QUANTILE": "_kernels",
        "LinkQueue": "_queues",
        "MOST_DEFERRED": "_deferred",
        "NORMAL_TABLE": "_kernels",
        "NORMAL_TABLE_ERROR": "_kernels",
        "PAPER_EPSILON": "_strategies",
        "STRATEGIES": "_strategies",
        "TIE": "_choosing",
        "TURNS": "_lane",
        "Arrival": "_deferred",
        "Columns": "_deferred",
        "DeferredQueue": "_deferred",
        "Deleted": "_waiting",
        "OutputQueue": "_waiting",
        "Reason": "_waiting",
        "Strategy": "_strategies",
        "Waiting": "_waiting",
        "allowed_delay_s": "_measures",
        "benefit": "_kernels",
        "deletion_time": "_kernels",
        "ebpc": "_measures",
        "expected_benefit": "_measures",
        "expiry_time": "_kernels",
        "normal_cdf": "_kernels",
        "postponed_benefit": "_measures",
        "postponing_cost": "_measures",
        "prepare": "_queues",
        "queue_for": "_queues",
        "remaining_lifetime": "_kernels",
        "strategy": "_strategies",
        "success_probability": "_measures",
        "tabulated_benefit": "_kernels",
        "tabulated_normal_cdf": "_kernels",
    },
)
