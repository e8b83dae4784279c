"""What `tidings predict` shows, in one process and on Spark: the facts, and the least reliable subscribers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import typer

from tidings.cli._output import shown_interval
from tidings.model.units import percent

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.prediction import Prediction, Sample, Unmodelled
    from tidings.statistics import ReliabilityInterval

__all__ = ["Row", "facts", "least_reliable", "print_unmodelled", "sampled_words", "unmodelled_words"]

OVERLOADED_MAX = 8


class Row(NamedTuple):
    """One subscriber; what is None is shown as a dash."""

    name: str
    matched_per_s: float
    mean_delay_s: float | None
    on_time_reliability: float | None
    path: Iterable[str]
    interval: "ReliabilityInterval | None" = None


def facts(answer: "Prediction", on_time: float | None, rate_per_s: float) -> "Table":
    """Of the whole network; `on_time` is None if nothing matches."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    table.add_row("model", answer.model)
    share = "nothing matches" if on_time is None else f"{percent(on_time)} of {rate_per_s:,.4g} deliveries a second"
    table.add_row("on time", share)
    busiest = answer.bottleneck
    table.add_row("busiest", "none" if busiest is None else f"{busiest} ({percent(answer.utilisation.max())})")
    if answer.overloaded:
        table.add_row("overloaded", Text(", ".join(answer.overloaded[:OVERLOADED_MAX]), style="red"))
    if answer.sample is not None:
        table.add_row("sampled", Text(sampled_words(answer, answer.sample)))
    error = answer.expected_error
    table.add_row("error", "not known" if error is None else f"about {error:.3f} on average")
    for each in answer.unmodelled:
        table.add_row("not modelled", Text(unmodelled_words(each), style="yellow"))
    return table


REASONS = {
    "scheduling": "links do not send first in, first out",
    "ordering": "receivers put events in order",
    "relocation": "publishers move",
    "routing": "events do not all take the path of one tree",
    "access": "clients have access links",
    "failures": "brokers or links fail",
    "bursts": "publishers send in bursts",
    "regularity": "publishers send at regular intervals",
    "dropping": "links drop what is expired",
    "content": "lifetimes or sizes depend on content",
    "churn": "subscribers come and go",
}


def sampled_words(answer: "Prediction", sample: "Sample") -> str:
    """How large a sample is, how sure, and why there is one."""
    width = sample.mean_half_width
    sure = "" if width is None else f", within {width:.3f} on average (95 %)"
    reasons = " and ".join(REASONS[kind] for kind in answer.left_out_by_formulas)
    return f"by the event loop with {sample.events:,} events{sure}, since {reasons}"


def unmodelled_words(left_out: "Unmodelled") -> str:
    """What is left out, and how many places it concerns."""
    counts = [
        f"{len(names):,} {what if len(names) > 1 else what[:-1]}"
        for what, names in (
            ("brokers", left_out.brokers),
            ("links", left_out.links),
            ("publishers", left_out.publishers),
        )
        if names
    ]
    where = f" ({', '.join(counts)})" if counts else ""
    return f"{left_out.what}{where}: R is predicted {left_out.effect}; {left_out.remedy}"


def print_unmodelled(unmodelled: "Iterable[Unmodelled]") -> None:
    """A line for each."""
    for each in unmodelled:
        typer.echo(f"not modelled: {unmodelled_words(each)}")


def least_reliable(rows: Iterable[Row], *, is_sampled: bool = False) -> "Table":
    """The rows as they come; a sample has intervals, and no delays."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="subscribers, the least reliable first", title_justify="left", box=None, pad_edge=False)
    table.add_column("subscriber")
    for heading in (
        ("events/s", "reliability", "95 % interval") if is_sampled else ("events/s", "mean delay", "reliability")
    ):
        table.add_column(heading, justify="right")
    table.add_column("path", overflow="ellipsis", no_wrap=True)
    for row in rows:
        share = percent(row.on_time_reliability)
        delay = "-" if row.mean_delay_s is None else f"{row.mean_delay_s:.4g} s"
        shown = (share, shown_interval(row.interval)) if is_sampled else (delay, share)
        table.add_row(Text(row.name), f"{row.matched_per_s:.4g}", *shown, Text(" ".join(row.path)))
    return table
