"""A network's summary for people to read."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidings.model.scenario import PublisherSummary, SubscriberSummary, Summary
from tidings.model.units import format_quantity, percent

__all__ = ["print_summary"]


def print_summary(summary: Summary) -> None:
    """Print the summary to standard output, in colour where that is a terminal."""
    console = Console(highlight=False)
    if summary.title:
        console.print(Text(summary.title, style="bold"))
    console.print(_facts(summary))
    if summary.publishers:
        console.print(_publishers(summary.publishers))
    if summary.subscribers:
        console.print(_subscribers(summary.subscribers))


def _facts(summary: Summary) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    diameter = "" if summary.diameter_hops is None else f", diameter {summary.diameter_hops} hops"
    overlay = f"{summary.brokers:,} brokers, {summary.links:,} links, mean degree {summary.mean_degree:.2f}{diameter}"
    propagation = format_quantity(summary.link_propagation_mean_s, "time", digits=3)
    link = f"propagation {propagation} on average"
    if summary.link_slowness_mean_s_per_kb is not None:
        link += f", transfer {format_quantity(summary.link_slowness_mean_s_per_kb, 'slowness', digits=3)}"
    table.add_row("overlay", overlay)
    table.add_row("links", link)
    volume = format_quantity(summary.volume_kb_per_s, "size", digits=3)
    table.add_row("offered load", f"{_rate(summary.events_per_s)} events, {volume} per second")
    if summary.deliveries_per_s is not None and summary.interest is not None:
        wanted = f"{percent(summary.interest)} of subscriptions want an event: about {_rate(summary.deliveries_per_s)}"
        table.add_row("interest", f"{wanted} deliveries")
    table.add_row("policies", f"scheduling {summary.scheduling}, {summary.routing}, expired: {summary.expired}")
    length = format_quantity(summary.duration_s, "time")
    warmup = f" after {format_quantity(summary.warmup_s, 'time')} of warm-up" if summary.warmup_s else ""
    table.add_row("run", f"{length}{warmup}, seed {summary.seed}")
    return table


def _publishers(groups: tuple[PublisherSummary, ...]) -> Table:
    table = Table(title="publishers", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("group", "count", "at", "rate", "volume", "lifetime", "attributes"):
        table.add_column(heading, justify="right" if heading in ("count", "rate", "volume", "lifetime") else "left")
    for group in groups:
        lifetime = "-" if group.lifetime_mean_s is None else format_quantity(group.lifetime_mean_s, "time", digits=3)
        volume = format_quantity(group.volume_kb_per_s, "size", digits=3) + "/s"
        attributes = Text(", ".join(group.attributes) or "-")
        row = (
            Text(group.group),
            f"{group.count:,}",
            _brokers(group.brokers),
            _rate(group.rate_per_s),
            volume,
            lifetime,
        )
        table.add_row(*row, attributes)
    return table


def _subscribers(groups: tuple[SubscriberSummary, ...]) -> Table:
    table = Table(title="subscribers", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("group", "count", "at", "deadline", "price", "filter of the first"):
        table.add_column(heading, justify="right" if heading in ("count", "deadline", "price") else "left")
    for group in groups:
        deadline = "-"
        if group.max_delay_least_s is not None and group.max_delay_most_s is not None:
            least, most = (
                format_quantity(s, "time", digits=3) for s in (group.max_delay_least_s, group.max_delay_most_s)
            )
            deadline = least if least == most else f"{least} to {most}"
        price = f"{group.price_least:g}"
        if group.price_most != group.price_least:
            price += f" to {group.price_most:g}"
        row = (Text(group.group), f"{group.count:,}", _brokers(group.brokers), deadline, price)
        table.add_row(*row, Text(group.filter_of_first))
    return table


def _brokers(count: int) -> str:
    return "1 broker" if count == 1 else f"{count:,} brokers"


def _rate(rate_per_s: float) -> str:
    return format_quantity(rate_per_s, "rate", digits=3)
