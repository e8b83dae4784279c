"""The demonstration's result on a terminal: the effect of each change, then a spread of subscribers."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidings.demo._values import Demonstration, OrderEffect, Standing
from tidings.model.units import format_quantity

__all__ = ["print_demo", "spread"]

SHOWN: Final = 12
GOOD, FAIR = 0.99, 0.9


def print_demo(demonstration: Demonstration, *, shown: int = SHOWN) -> None:
    """What was found, to standard output."""
    console = Console(highlight=False)
    console.print()
    console.print(Text(demonstration.title, style="bold"))
    clients = len(demonstration.subscribers)
    console.print(
        f"{demonstration.events:,} events for {demonstration.deliveries:,} deliveries to {clients:,} subscribers."
    )
    console.print(f"Mean on-time share (R) {100 * demonstration.reliability:.1f} %. {_accuracy(demonstration)}")
    for each in demonstration.unmodelled:
        console.print(Text(f"Not modelled: {each.what}; R is predicted {each.effect}."))
    console.print()
    changes = Table(title="The effect of each change", title_justify="left", box=None, pad_edge=False)
    changes.add_column("change", no_wrap=True)
    changes.add_column("mean R", justify="right", no_wrap=True)
    changes.add_column("gaining", justify="right", no_wrap=True)
    changes.add_column("what it does")
    for effect in demonstration.effects:
        share = _share(effect.reliability)
        changes.add_row(Text(effect.name), share, f"{effect.gaining:,}", Text(effect.description))
    changes.add_row("all of them", _share(demonstration.reliability_all), "", "")
    console.print(changes)
    if demonstration.order is not None:
        console.print(_order(demonstration.order))
    console.print()
    console.print(_subscribers(demonstration, shown))
    rest = len(demonstration.subscribers) - shown
    if rest > 0:
        console.print(f"and {rest:,} more; --json and the report show all", style="dim")


def _accuracy(demonstration: Demonstration) -> str:
    """How far off R was when it was computed beforehand, and how it was computed."""
    points = f"{100 * demonstration.error:.1f} points"
    if demonstration.unpredicted is None:
        return f"The prediction, made before anything ran, is off by {points} on average."
    return (
        f"No prediction covers {demonstration.unpredicted}: a short simulation estimated R beforehand, "
        f"off by {points} on average."
    )


def _order(order: OrderEffect) -> str:
    if not order.out_of_order or order.repaired is None:
        return "Nothing arrives out of order here, so ordering has nothing to repair."
    return (
        f"Sending by deadline lets urgent events overtake others: {100 * order.out_of_order / order.received:.1f} % "
        f"arrive out of order. Ordering repairs {100 * order.repaired:.1f} % of them and holds an event for "
        f"{order.hold_ms_mean:.2g} ms on average."
    )


def _subscribers(demonstration: Demonstration, shown: int) -> Table:
    """As narrow as a terminal may be: where it does not fit, words wrap and figures stay."""
    standings = demonstration.subscribers
    beforehand = "predicted" if demonstration.unpredicted is None else "estimated"
    title = f"R now, as {beforehand}, with the best single change, and with all changes"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("subscriber", no_wrap=True)
    table.add_column("at", no_wrap=True)
    for heading in ("deadline", "now", beforehand, "best"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("by")
    table.add_column("all", justify="right", no_wrap=True)
    for row in spread(standings, shown):
        deadline = "-" if row.max_delay_s is None else format_quantity(row.max_delay_s, "time", digits=3)
        figures = [
            _share(row.measured),
            Text("-" if row.predicted is None else f"{100 * row.predicted:.1f} %"),
            _share(row.best),
        ]
        table.add_row(
            Text(row.subscriber), Text(row.broker), deadline, *figures, Text(row.best_change or "-"), _share(row.all)
        )
    return table


def _share(share: float | None) -> Text:
    if share is None:
        return Text("-")
    return Text(f"{100 * share:.1f} %", style="green" if share >= GOOD else "yellow" if share >= FAIR else "red")


def spread(standings: Sequence[Standing], count: int) -> list[Standing]:
    """Evenly spaced ones of those that match anything, from the least on time to the most."""
    alive = sorted((row for row in standings if row.measured is not None), key=lambda row: row.measured or 0.0)
    if len(alive) <= count:
        return alive
    return [alive[round(number * (len(alive) - 1) / (count - 1))] for number in range(count)]
