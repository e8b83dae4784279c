"""The demonstration's result for people to read."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidings.model.units import format_quantity

__all__ = ["print_demo"]


def print_demo(result: dict[str, Any], *, shown: int) -> None:
    """What the traffic asks of the overlay, then a spread of subscribers from the easiest deadline to the hardest."""
    console = Console(highlight=False)
    saved = (
        1 - result["links_per_event"] / result["links_per_event_unicast"] if result["links_per_event_unicast"] else 0
    )
    console.print()
    console.print(
        f"An event matches {result['matches_per_event']:.1f} subscriptions and crosses "
        f"{result['links_per_event']:.1f} links to reach them, each once: {saved:.0%} fewer than one copy for each "
        f"subscriber ({result['links_per_event_unicast']:.1f}), where flooding would take all "
        f"{result['links_per_event_flooding']:.0f}."
    )
    console.print()
    rows = _spread(result["subscribers"], shown)
    names = max((len(row["id"]) for row in rows), default=0)
    places = max((len(row["broker"]) for row in rows), default=0)
    figures = ("of events", "at least", "deadline", "taken")
    room = console.width - max(10, names) - places - sum(map(len, figures)) - 2 * (len(figures) + 2)
    table = Table(box=None, pad_edge=False)
    table.add_column("subscriber", no_wrap=True, min_width=max(10, names))
    table.add_column("at", no_wrap=True, min_width=places)
    table.add_column("wants", no_wrap=True, overflow="ellipsis", width=max(12, room))  # gives way on a narrow terminal
    for heading in figures:
        table.add_column(heading, justify="right", no_wrap=True, min_width=len(heading))
    for row in rows:
        table.add_row(
            Text(row["id"]),
            Text(row["broker"]),
            Text(row["filter"]),
            f"{row['interest']:.1%}",
            format_quantity(row["least_delay_s"], "time", digits=3),
            "-" if row["max_delay_s"] is None else format_quantity(row["max_delay_s"], "time", digits=3),
            _taken(row["least_delay_s"], row["max_delay_s"]),
        )
    console.print(table)
    console.print()
    console.print(f"The overlay: {result['picture']}")


def _taken(least_delay_s: float, max_delay_s: float | None) -> Text:
    """How much of the deadline the way alone takes, before anything has waited in a queue."""
    if max_delay_s is None:
        return Text("-")
    share = least_delay_s / max_delay_s
    return Text(f"{share:.0%}", style="red" if share >= 1 else "yellow" if share >= 0.5 else "green")


def _spread(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Evenly spaced rows of those with any interest, ordered by how much of the deadline the way alone takes."""
    alive = [row for row in rows if row["least_delay_s"] is not None]
    alive.sort(key=lambda row: row["least_delay_s"] / (row["max_delay_s"] or float("inf")))
    if len(alive) <= count:
        return alive
    return [alive[round(i * (len(alive) - 1) / (count - 1))] for i in range(count)]
