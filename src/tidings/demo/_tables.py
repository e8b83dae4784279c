"""The demonstration's result on a terminal: what each change brings, then a spread of subscribers."""

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
    console.print(f"Mean on-time share (R) {demonstration.reliability:.3f}. {_told(demonstration)}")
    for each in demonstration.unmodelled:
        console.print(Text(f"Not modelled: {each.what}; R is predicted {each.effect}."))
    console.print()
    changes = Table(title="what each change would bring", title_justify="left", box=None, pad_edge=False)
    changes.add_column("change", no_wrap=True)
    changes.add_column("mean R", justify="right", no_wrap=True)
    changes.add_column("who gains", justify="right", no_wrap=True)
    changes.add_column("it means to")
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
        console.print(f"and {rest:,} more, from worst to best; --json and the report have all", style="dim")


def _told(demonstration: Demonstration) -> str:
    """How far off R was when it was told beforehand, and how it was."""
    if demonstration.unpredicted is None:
        return f"Predicted before anything was run, it is {demonstration.error:.3f} off in the mean."
    return (
        f"No prediction knows {demonstration.unpredicted}: a short simulation told it beforehand, "
        f"{demonstration.error:.3f} off in the mean."
    )


def _order(order: OrderEffect) -> str:
    if not order.out_of_order or order.repaired is None:
        return "Nothing comes out of order here, so there is nothing for ordering to put right."
    return (
        f"Sending by deadlines lets urgent events overtake: {order.out_of_order / order.received:.1%} come out of "
        f"order. Ordering puts {order.repaired:.1%} of them right and holds an event for {order.hold_ms_mean:.2g} ms "
        "in the mean."
    )


def _subscribers(demonstration: Demonstration, shown: int) -> Table:
    """As narrow as a terminal may be: where it does not fit, words wrap and figures stay."""
    standings = demonstration.subscribers
    told = "predicted" if demonstration.unpredicted is None else "told"
    title = f"R now, as {told}, after the best single change, and after all of them"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("subscriber", no_wrap=True)
    table.add_column("at", no_wrap=True)
    for heading in ("deadline", "now", told, "best"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("by")
    table.add_column("all", justify="right", no_wrap=True)
    for row in spread(standings, shown):
        deadline = "-" if row.max_delay_s is None else format_quantity(row.max_delay_s, "time", digits=3)
        figures = [
            _share(row.measured),
            Text("-" if row.predicted is None else f"{row.predicted:.3f}"),
            _share(row.best),
        ]
        table.add_row(
            Text(row.subscriber), Text(row.broker), deadline, *figures, Text(row.best_change or "-"), _share(row.all)
        )
    return table


def _share(share: float | None) -> Text:
    if share is None:
        return Text("-")
    return Text(f"{share:.3f}", style="green" if share >= GOOD else "yellow" if share >= FAIR else "red")


def spread(standings: Sequence[Standing], count: int) -> list[Standing]:
    """Evenly spaced ones of those that match anything, from the least on time to the most."""
    alive = sorted((row for row in standings if row.measured is not None), key=lambda row: row.measured or 0.0)
    if len(alive) <= count:
        return alive
    return [alive[round(number * (len(alive) - 1) / (count - 1))] for number in range(count)]
