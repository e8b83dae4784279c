"""The demonstration on a terminal, as a story: who was late, why, what was done, what it brought, what to do next."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidings.demo._values import Demonstration, OrderEffect, Standing
from tidings.model.units import format_quantity, percent, points

__all__ = ["next_commands", "print_demo", "spread"]

SHOWN: Final = 8
GOOD, FAIR = 0.99, 0.9
LATE: Final = 0.95
"""Subscribers with a lower on-time share are counted as late."""
LOSS: Final = 0.01
"""Subscribers whose share falls by this much are mentioned."""


def print_demo(demonstration: Demonstration, *, shown: int = SHOWN) -> None:
    """Print the story to standard output."""
    console = Console(highlight=False)
    console.print()
    console.print(Text(demonstration.title, style="bold"))
    console.print(
        f"{format_quantity(demonstration.simulated_s, 'time', digits=3)}, {demonstration.brokers:,} brokers, "
        f"{len(demonstration.subscribers):,} subscribers, {demonstration.events:,} events, "
        f"{demonstration.deliveries:,} deliveries."
    )
    chapters = (
        ("Who was late?", _who(demonstration)),
        ("Why?", demonstration.reason or "Nobody was late."),
        ("What was done?", _changes(demonstration)),
        ("What did it bring?", _gain(demonstration)),
        ("Was it foreseen?", _accuracy(demonstration)),
    )
    for title, content in chapters:
        console.print()
        console.print(Text(title, style="bold"))
        console.print(content if isinstance(content, Table) else Text(content))
    console.print()
    console.print(_subscribers(demonstration, shown))
    rest = len(demonstration.subscribers) - shown
    if rest > 0:
        console.print(f"and {rest:,} more; --json and the report show all", style="dim")


def next_commands(demonstration: Demonstration) -> list[tuple[str, str]]:
    """Three commands that lead on, each with its purpose."""
    scenario = demonstration.scenario
    worst = demonstration.worst or demonstration.subscribers[0].subscriber
    return [
        (f"tidings predict {scenario} --explain {worst}", "where the time of one subscriber goes"),
        (f"tidings plan {scenario} --slo 0.95", "the cheapest changes that give everyone 95 %"),
        ("tidings up examples/live/network.toml", "real brokers on this machine"),
    ]


def _who(demonstration: Demonstration) -> str:
    known = [row for row in demonstration.subscribers if row.measured is not None]
    worst = next((row for row in known if row.subscriber == demonstration.worst), None)
    if worst is None:
        return "No event matched any subscription."
    deadline = ""
    if worst.max_delay_s is not None:
        deadline = f" within its deadline of {format_quantity(worst.max_delay_s, 'time', digits=3)}"
    late = _count_late([row.measured for row in known])
    return (
        f"{worst.subscriber} at {worst.broker} got only {percent(worst.measured)} of its events{deadline}. "
        f"{late:,} of {len(known):,} subscribers got less than {percent(LATE, 0)} on time. The mean "
        f"of all on-time shares is {percent(demonstration.reliability)}; of all deliveries, "
        f"{percent(demonstration.on_time_share)} were on time."
    )


def _changes(demonstration: Demonstration) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("change", no_wrap=True)
    table.add_column("mean on time", justify="right", no_wrap=True)
    table.add_column("gain", justify="right", no_wrap=True)
    table.add_column("what it does")
    for effect in demonstration.effects:
        gain = points(demonstration.reliability, effect.reliability)
        table.add_row(Text(effect.name), _share(effect.reliability), gain, Text(effect.description))
    gain = points(demonstration.reliability, demonstration.reliability_all)
    table.add_row("all, simulated", _share(demonstration.reliability_all), gain, "")
    return table


def _gain(demonstration: Demonstration) -> str:
    known = [row for row in demonstration.subscribers if row.measured is not None]
    worst = next((row for row in known if row.subscriber == demonstration.worst), None)
    words = (
        f"With all changes the mean on-time share rises from {percent(demonstration.reliability)} to "
        f"{percent(demonstration.reliability_all)}, and {_count_late([row.all for row in known]):,} instead of "
        f"{_count_late([row.measured for row in known]):,} subscribers stay below {percent(LATE, 0)}."
    )
    if worst is not None:
        words += f" {worst.subscriber} goes from {percent(worst.measured)} to {percent(worst.all)}."
    losing = [row for row in known if (row.measured or 0.0) - (row.all or 0.0) >= LOSS]
    if losing:
        most = max(losing, key=lambda row: (row.measured or 0.0) - (row.all or 0.0))
        lose = f"{len(losing):,} subscribers lose" if len(losing) > 1 else "1 subscriber loses"
        words += f" {lose} a point or more, {most.subscriber} most: from {percent(most.measured)} to "
        words += f"{percent(most.all)}."
    return words + (f" {_order(demonstration.order)}" if demonstration.order is not None else "")


def _order(order: OrderEffect) -> str:
    if not order.out_of_order or order.repaired is None:
        return "Nothing arrives out of order, so ordering has nothing to repair."
    return (
        f"Urgent events now overtake others: {percent(order.out_of_order / order.received)} arrive out of order. "
        f"Receivers put {percent(order.repaired)} of these right and hold an event for {order.hold_ms_mean:.2g} ms "
        "on average."
    )


def _accuracy(demonstration: Demonstration) -> str:
    """How far off the shares were that were computed beforehand, and how they were computed."""
    error = f"{100 * demonstration.error:.1f} points"
    if demonstration.unpredicted is not None:
        return (
            f"No prediction covers {demonstration.unpredicted}. A short simulation estimated the shares beforehand, "
            f"off by {error} on average."
        )
    left_out = "".join(f" Not modelled: {each.what}; predicted {each.effect}." for each in demonstration.unmodelled)
    return f"The prediction, made before anything ran, is off by {error} on average.{left_out}"


def _subscribers(demonstration: Demonstration, shown: int) -> Table:
    """A spread of subscribers, narrow enough for 60 columns."""
    beforehand = "predicted" if demonstration.unpredicted is None else "estimated"
    table = Table(
        title="On-time shares, from the lowest to the highest", title_justify="left", box=None, pad_edge=False
    )
    table.add_column("subscriber", no_wrap=True)
    table.add_column("at", no_wrap=True)
    for heading in ("deadline", beforehand, "before", "after"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in spread(demonstration.subscribers, shown):
        deadline = "-" if row.max_delay_s is None else format_quantity(row.max_delay_s, "time", digits=3)
        table.add_row(
            Text(row.subscriber),
            Text(row.broker),
            deadline,
            percent(row.predicted),
            _share(row.measured),
            _share(row.all),
        )
    return table


def _count_late(shares: Sequence[float | None]) -> int:
    return sum(share is not None and share < LATE for share in shares)


def _share(share: float | None) -> Text:
    if share is None:
        return Text("-")
    return Text(percent(share), style="green" if share >= GOOD else "yellow" if share >= FAIR else "red")


def spread(standings: Sequence[Standing], count: int) -> list[Standing]:
    """Evenly spaced ones of those that match anything, from the lowest on-time share to the highest."""
    known = sorted((row for row in standings if row.measured is not None), key=lambda row: row.measured or 0.0)
    if len(known) <= count:
        return known
    return [known[round(number * (len(known) - 1) / (count - 1))] for number in range(count)]
