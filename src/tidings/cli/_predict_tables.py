"""What `tidings predict` shows, in one process and on Spark: the facts, and the least reliable subscribers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.prediction import Prediction

__all__ = ["Row", "facts", "least_reliable"]

OVERLOADED_MAX = 8


class Row(NamedTuple):
    """One subscriber; what is None is shown as a dash."""

    name: str
    matched_per_s: float
    mean_delay_s: float | None
    on_time_reliability: float | None
    path: Iterable[str]


def facts(answer: "Prediction", on_time: float | None, rate_per_s: float) -> "Table":
    """Of the whole network; `on_time` is None if nothing matches."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    table.add_row("model", answer.model)
    share = "nothing matches" if on_time is None else f"{on_time:.2%} of {rate_per_s:,.4g} deliveries a second"
    table.add_row("on time", share)
    busiest = answer.bottleneck
    table.add_row("busiest", "none" if busiest is None else f"{busiest} ({answer.utilisation.max():.1%})")
    if answer.overloaded:
        table.add_row("overloaded", Text(", ".join(answer.overloaded[:OVERLOADED_MAX]), style="red"))
    return table


def least_reliable(rows: Iterable[Row]) -> "Table":
    """The rows as they come."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="subscribers, the least reliable first", title_justify="left", box=None, pad_edge=False)
    table.add_column("subscriber")
    for heading in ("events/s", "mean delay", "reliability"):
        table.add_column(heading, justify="right")
    table.add_column("path", overflow="ellipsis", no_wrap=True)
    for row in rows:
        share = "-" if row.on_time_reliability is None else f"{row.on_time_reliability:.2%}"
        delay = "-" if row.mean_delay_s is None else f"{row.mean_delay_s:.4g} s"
        table.add_row(Text(row.name), f"{row.matched_per_s:.4g}", delay, share, Text(" ".join(row.path)))
    return table
