"""Scheduling: what a link sends next, by what it is worth to whom and how soon it will be worthless (paper C).

Pure algorithms: figures of events and paths in, a choice out; time is an argument. `success_probability` to `ebpc`
measure many events at once, a `Strategy` says what counts, `queue_for` makes the output queue of a link, and the
compiled decisions (`decide`, `heap_choose`) serve loops that keep their queues in flat arrays.
docs/reference/scheduling.md shows them at work.

Names load on first use: who only names a strategy must not load the compiler.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.scheduling._choosing import TIE, choose, decide, purge, take
    from tidings.scheduling._deferred import MOST_DEFERRED, Columns, DeferredQueue
    from tidings.scheduling._heap import heap_choose, heap_purge, heap_push, heap_take
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
    from tidings.scheduling._layout import TURNS, Pairs, Paths, Slots, empty_slots, fill_slot, forget
    from tidings.scheduling._measures import (
        allowed_delay_s,
        ebpc,
        expected_benefit,
        postponed_benefit,
        postponing_cost,
        success_probability,
    )
    from tidings.scheduling._queues import DEFAULT_MAX_QUEUED, FifoQueue, HeapQueue, ScanQueue, queue_for
    from tidings.scheduling._strategies import BOLD_EPSILON, PAPER_EPSILON, STRATEGIES, Strategy, strategy
    from tidings.scheduling._twins import PlainQueue
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
    "Columns",
    "DeferredQueue",
    "Deleted",
    "FifoQueue",
    "HeapQueue",
    "OutputQueue",
    "Pairs",
    "Paths",
    "PlainQueue",
    "Reason",
    "ScanQueue",
    "Slots",
    "Strategy",
    "Waiting",
    "allowed_delay_s",
    "benefit",
    "choose",
    "decide",
    "deletion_time",
    "ebpc",
    "empty_slots",
    "expected_benefit",
    "expiry_time",
    "fill_slot",
    "forget",
    "heap_choose",
    "heap_purge",
    "heap_push",
    "heap_take",
    "normal_cdf",
    "postponed_benefit",
    "postponing_cost",
    "purge",
    "queue_for",
    "remaining_lifetime",
    "strategy",
    "success_probability",
    "tabulated_benefit",
    "tabulated_normal_cdf",
    "take",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "BOLD_EPSILON": "_strategies",
        "DEFAULT_MAX_QUEUED": "_queues",
        "HOPELESS_QUANTILE": "_kernels",
        "MOST_DEFERRED": "_deferred",
        "NORMAL_TABLE": "_kernels",
        "NORMAL_TABLE_ERROR": "_kernels",
        "PAPER_EPSILON": "_strategies",
        "STRATEGIES": "_strategies",
        "TIE": "_choosing",
        "TURNS": "_layout",
        "Columns": "_deferred",
        "DeferredQueue": "_deferred",
        "Deleted": "_waiting",
        "FifoQueue": "_queues",
        "HeapQueue": "_queues",
        "OutputQueue": "_waiting",
        "Pairs": "_layout",
        "Paths": "_layout",
        "PlainQueue": "_twins",
        "Reason": "_waiting",
        "ScanQueue": "_queues",
        "Slots": "_layout",
        "Strategy": "_strategies",
        "Waiting": "_waiting",
        "allowed_delay_s": "_measures",
        "benefit": "_kernels",
        "choose": "_choosing",
        "decide": "_choosing",
        "deletion_time": "_kernels",
        "ebpc": "_measures",
        "empty_slots": "_layout",
        "expected_benefit": "_measures",
        "expiry_time": "_kernels",
        "fill_slot": "_layout",
        "forget": "_layout",
        "heap_choose": "_heap",
        "heap_purge": "_heap",
        "heap_push": "_heap",
        "heap_take": "_heap",
        "normal_cdf": "_kernels",
        "postponed_benefit": "_measures",
        "postponing_cost": "_measures",
        "purge": "_choosing",
        "queue_for": "_queues",
        "remaining_lifetime": "_kernels",
        "strategy": "_strategies",
        "success_probability": "_measures",
        "tabulated_benefit": "_kernels",
        "tabulated_normal_cdf": "_kernels",
        "take": "_choosing",
    },
)
