"""Ordering: a publisher's events as they were sent, without waiting for what will never come (paper A).

Pure algorithms: `latch_time` and its kin are the statistics, `Stamper` is the sender's side, `Sequencer` and
`Receiver` are the receiver's, `replay` does the same over recorded arrivals, compiled. `OrderedReceiver` puts order
on any client that calls back. docs/reference/ordering.md shows them at work.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.ordering._blocks import OngoingReplay
    from tidings.ordering._bounds import bernstein, cantelli, chebyshev, chernoff
    from tidings.ordering._kernels import COUNTS, STILL_HELD, WINDOW
    from tidings.ordering._laplace import (
        fit_likelihood,
        fit_moment,
        latch_time,
        log_likelihood,
        two_laplacians_cdf,
        two_laplacians_pdf,
        two_laplacians_quantile,
        violation_probability,
    )
    from tidings.ordering._laplace_sums import LaplaceSum
    from tidings.ordering._latches import Overtaking, learn, overtaking_latch
    from tidings.ordering._policies import Policy
    from tidings.ordering._properties import from_properties, to_properties
    from tidings.ordering._receiver import (
        DEFAULT_IDLE_NS,
        DEFAULT_MAX_PUBLISHERS,
        OrderedReceiver,
        Receiver,
        Timer,
        call_later_in_a_thread,
    )
    from tidings.ordering._recorded import (
        FALSE_MATCHES,
        Arrivals,
        Publications,
        Recorded,
        draw_names,
        recorded_streams,
        sparse_draws_between,
    )
    from tidings.ordering._replay import Replayed, Streams, optimal_static_latch, overtaken_ns, replay
    from tidings.ordering._sequencer import Counts, Delivery, Sequencer
    from tidings.ordering._snapshot import Snapshot
    from tidings.ordering._stamps import MAX_RECORD, RECORD_ENTRY_BYTES, RecordEntry, Stamp, Stamper
    from tidings.ordering._summaries import SUMMARY_BYTES, SummaryMatcher, summarise

__all__ = [
    "COUNTS",
    "DEFAULT_IDLE_NS",
    "DEFAULT_MAX_PUBLISHERS",
    "FALSE_MATCHES",
    "MAX_RECORD",
    "RECORD_ENTRY_BYTES",
    "STILL_HELD",
    "SUMMARY_BYTES",
    "WINDOW",
    "Arrivals",
    "Counts",
    "Delivery",
    "LaplaceSum",
    "OngoingReplay",
    "OrderedReceiver",
    "Overtaking",
    "Policy",
    "Publications",
    "Receiver",
    "RecordEntry",
    "Recorded",
    "Replayed",
    "Sequencer",
    "Snapshot",
    "Stamp",
    "Stamper",
    "Streams",
    "SummaryMatcher",
    "Timer",
    "bernstein",
    "call_later_in_a_thread",
    "cantelli",
    "chebyshev",
    "chernoff",
    "draw_names",
    "fit_likelihood",
    "fit_moment",
    "from_properties",
    "latch_time",
    "learn",
    "log_likelihood",
    "optimal_static_latch",
    "overtaken_ns",
    "overtaking_latch",
    "recorded_streams",
    "replay",
    "sparse_draws_between",
    "summarise",
    "to_properties",
    "two_laplacians_cdf",
    "two_laplacians_pdf",
    "two_laplacians_quantile",
    "violation_probability",
]

__getattr__, __dir__ = lazily(__name__)
