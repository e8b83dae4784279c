"""What partials of pairs hold, and by what they are put together."""

from typing import Final

from tidings.pipeline.measures._sums import Total, merged_value

__all__ = [
    "BATCHED",
    "COUNTS",
    "PAIR_TOTALS",
    "SCORE_TOTALS",
    "SETS",
    "SHARES",
]

SETS: Final = (("publisher", "subscription", "subscriber"), ("topic", "window_ns"))
"""What partials are put together by at first: everything else is put together of these, which are far fewer."""

COUNTS: Final = ("matched", "on_time", "on_time_least", "on_time_most", "late", "duplicates")
"""What partials count, beside violations of order."""

BATCHED: Final = (
    ("subscription", "subscriber"),
    ("publisher",),
    ("topic",),
    ("window_ns",),
    ("publisher", "subscription"),
)
"""By what tables show shares with intervals: batches cannot be put together of those of others."""
PAIR_TOTALS: Final = (
    *(Total(name, "sum") for name in (*COUNTS, "fifo_violations")),
    *merged_value("delay"),
    Total("difference_count", "sum"),
    Total("difference_absolute_sum", "exact"),
    Total("difference_sketch", "sketch"),
)
"""What is added up by SETS; the earnings beside it."""
SCORE_TOTALS: Final = (
    *(
        each
        for each in PAIR_TOTALS
        if each.name in (*COUNTS, "fifo_violations", "delay_sum", "delay_min", "delay_max", "delay_sketch")
    ),
)
"""What scores are made of."""
SHARES: Final = {"on_time": ("on_time", "matched"), "arrived": ("arrived", "matched")}
