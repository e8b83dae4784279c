"""`tidings top`: a live network on a terminal, refreshed every second or two: verdict, brokers, links, the worst
subscriptions, the busiest publishers."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidings.cli._output import Json, print_json, reporting
from tidings.cli._troubles import STYLES, trouble_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from tidings.live import Network

__all__ = ["EPILOG", "SORTS", "frame", "top"]

EPILOG = "Try:\n\ntidings top examples/live/network.toml\n\ntidings top examples/live/network.toml --once"
ROWS: Final = 12
"""Rows of each table at most; the terminal cuts off what does not fit."""
TROUBLES: Final = 4
PIPE_COLUMNS: Final = 140
_BARS: Final = "▁▂▃▄▅▆▇█"
_SPARK: Final = 40
SORTS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "trouble": lambda _: 0,  # as the status ranks them: the worst first
    "name": lambda each: each["subscription"],
    "broker": lambda each: (each["broker"], each["subscription"]),
    "delay": lambda each: -((each["last_minute"] or {}).get("delay_ms_p99") or 0.0),
    "queued": lambda each: -(each["queued"] or 0),
}
"""How subscriptions are sorted; the key `s` takes the next one."""


def top(
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="The network file, in TOML.", show_default=False)],
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often to refresh.", min=0.2)] = 2.0,
    sort: Annotated[str, typer.Option("--sort", metavar="|".join(SORTS), help="How to sort subscriptions.")] = next(
        iter(SORTS)
    ),
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    json: Json = False,
) -> None:
    """Watch a running network on the terminal.

    Shows the verdict, rates and delays of the last 15 minutes, brokers,
    links, the worst subscriptions and the busiest publishers. Keys: q quits,
    s changes the order of subscriptions. Without a terminal it prints one
    frame, as with --once; --json prints what `tidings status --json` does.
    The exit code is 1 if a broker does not answer.
    """
    with reporting(json=json):
        import asyncio

        from tidings.errors import InputError
        from tidings.live import read_network

        if sort not in SORTS:
            raise InputError(f"--sort {sort}: choose one of {', '.join(SORTS)}")
        read = read_network(network)
        is_live = sys.stdout.isatty() and sys.stdin.isatty() and not once and not json
        if is_live:
            asyncio.run(_watch(read, network, every, sort))
            return
        found = asyncio.run(_ask(read, network))
        if json:
            print_json(found)
        else:
            from rich.console import Console

            console = Console(highlight=False)
            if not console.is_terminal:
                console.width = max(console.width, PIPE_COLUMNS)
            console.print(frame(found, sort))
        if not all(broker["up"] for broker in found["brokers"]):
            raise typer.Exit(1)


async def _ask(network: "Network", file: Path) -> dict[str, Any]:
    from tidings.live.operations import ask_network, network_status

    return network_status(await ask_network(network, patience_s=2.0), file=str(file))


async def _watch(network: "Network", file: Path, every_s: float, sort: str) -> None:
    """Refresh until `q` or Ctrl-C."""
    import asyncio

    from rich.live import Live
    from rich.text import Text

    is_pressed, sorts = asyncio.Event(), list(SORTS)
    at, has_ended = sorts.index(sort), False

    def press(key: str) -> None:
        nonlocal at, has_ended
        has_ended = has_ended or key == "q"
        at = (at + 1) % len(sorts) if key == "s" else at
        is_pressed.set()

    with _keys(press), Live(Text("asking the brokers"), screen=True, auto_refresh=False) as live:
        live.refresh()
        while not has_ended:
            found = await _ask(network, file)
            until_s = asyncio.get_running_loop().time() + every_s
            while not has_ended:
                live.update(frame(found, sorts[at], is_live=True), refresh=True)
                is_pressed.clear()
                try:
                    async with asyncio.timeout_at(until_s):
                        await is_pressed.wait()
                except TimeoutError:
                    break


@contextmanager
def _keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call for each key that is pressed; the terminal is as before afterwards."""
    import asyncio
    import termios
    import tty

    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        for key in os.read(descriptor, 64).decode(errors="replace"):
            press(key)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def frame(status: dict[str, Any], sort: str = "trouble", *, is_live: bool = False) -> "RenderableType":
    """One picture of the network's status."""
    from rich.console import Group
    from rich.text import Text

    verdict, brokers = status["verdict"], status["brokers"]
    parts: list[RenderableType] = [Text(verdict.line, style=f"bold {STYLES[verdict.state]}"), _rates(status)]
    for trouble in verdict.troubles[:TROUBLES]:
        what, *more = trouble_lines(trouble)
        shown = [] if trouble.gravity == "notice" else [f"  {line}" for line in more]
        parts.append(Text("\n".join([what, *shown])))
    if len(verdict.troubles) > TROUBLES:
        parts.append(Text(f"and {len(verdict.troubles) - TROUBLES:,} more: see tidings status"))
    parts += [Text(), _brokers(brokers), Text(), _links(brokers)]
    if status["subscribers"]:
        parts += [Text(), _subscribers(status["subscribers"], sort)]
    if any(broker.get("publishers") for broker in brokers):
        parts += [Text(), _publishers(brokers)]
    if is_live:
        parts += [Text(f"\nq quits, s sorts subscriptions (now by {sort})", style="dim")]
    return Group(*parts)


def _table(first: str, *headings: str, words: int = 0) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(first, overflow="fold")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < words else "right", overflow="fold")
    return table


def _rates(status: dict[str, Any]) -> "Table":
    """The figures of the whole network now, and their last minutes."""
    from tidings.model.units import percent

    history, table = status["history"], _table("", "now", "last minutes")
    share = status["verdict"].on_time_reliability
    waiting = sum(broker.get("queued", 0) for broker in status["brokers"])
    for name, key, now in (
        ("on time, last minute", "on_time_reliability", percent(share)),
        ("events in per second", "published_per_s", None),
        ("deliveries per second", "delivered_per_s", None),
        ("median delay, ms", "delay_ms_p50", None),
        ("p99 delay, ms", "delay_ms_p99", None),
        ("events that wait", "queued", f"{waiting:,}"),
    ):
        column = history[key]
        table.add_row(name, now or _figure(column[-1] if column else None), _spark(column))
    return table


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"


def _spark(values: "Sequence[float | None]") -> str:
    """The last values as bars; the highest is the largest of them."""
    last = values[-_SPARK:]
    most = max((value for value in last if value is not None), default=0) or 1
    return "".join(" " if value is None else _BARS[round(value / most * (len(_BARS) - 1))] for value in last)


def _brokers(brokers: list[dict[str, Any]]) -> "Table":
    from rich.text import Text

    from tidings.model.units import percent

    table = _table("broker", "state", "busy", "clients", "queued", "stored", "on time", "p99 delay", "in/s", words=1)
    for broker in brokers:
        if not broker["up"]:
            table.add_row(Text(broker["name"]), Text("down", style="red"))
            continue
        recent, published = broker["deliveries"]["last_minute"], broker.get("publishers", [])
        table.add_row(
            Text(broker["name"]),
            "draining" if broker["draining"] else "up" if broker["ready"] else "starting",
            f"{broker['utilisation']:.0%}",
            f"{broker['clients_connected']:,}/{broker['clients']:,}",
            f"{broker['queued']:,}",
            f"{broker['stored']:,}",
            percent(recent["on_time_reliability"]),
            _ms(recent["delay_ms_p99"]),
            _figure(sum(each["rate_per_s"] for each in published)),
        )
    return table


def _links(brokers: list[dict[str, Any]]) -> "Table":
    """Links by what waits for them."""
    from rich.text import Text

    from tidings.live.operations import links_of

    by_name = {broker["name"]: broker for broker in brokers}
    rows = []
    for (one, other), is_up in links_of(brokers).items():
        ends = [by_name.get(at, {}).get("neighbours", {}).get(to) for at, to in ((one, other), (other, one))]
        queued = [0 if end is None else end["queued"] for end in ends]
        trips = [end["rtt_s"] for end in ends if end is not None and end["rtt_s"] is not None]
        rows.append((is_up, -sum(queued), f"{one} - {other}", queued, max(trips, default=None)))
    table = _table("link", "state", "queued there", "queued back", "round trip", words=1)
    for is_up, _, name, queued, trip_s in sorted(rows, key=lambda row: row[:3])[:ROWS]:
        state = Text("up") if is_up else Text("down", style="red")
        table.add_row(Text(name), state, *(f"{each:,}" for each in queued), _ms(trip_s and trip_s * 1e3))
    return table


def _subscribers(subscribers: dict[str, dict[str, Any]], sort: str) -> "Table":
    from rich.text import Text

    from tidings.model.units import percent

    table = _table("subscription", "at", "state", "on time", "p99 delay", "queued", "late", "dropped", "lost", words=2)
    rows = sorted(({"subscription": name, **each} for name, each in subscribers.items()), key=SORTS[sort])
    for each in rows[:ROWS]:
        recent = each["last_minute"] or dict.fromkeys(
            ("on_time_reliability", "delay_ms_p99", "late", "dropped", "lost")
        )
        state = "broker down" if each["affected"] else "connected" if each["connected"] else "away"
        table.add_row(
            Text(each["subscription"]),
            Text(each["broker"]),
            state,
            percent(recent["on_time_reliability"]),
            _ms(recent["delay_ms_p99"]),
            *("–" if value is None else f"{value:,}" for value in (each["queued"], *_outcomes(recent))),
        )
    if len(rows) > ROWS:
        table.add_row(f"and {len(rows) - ROWS:,} more")
    return table


def _outcomes(recent: dict[str, Any]) -> list[int | None]:
    return [recent[key] for key in ("late", "dropped", "lost")]


def _publishers(brokers: list[dict[str, Any]]) -> "Table":
    from rich.text import Text

    table = _table("publisher", "at", "state", "events/s", "published", "reaches", words=2)
    rows = [(each, broker["name"]) for broker in brokers for each in broker.get("publishers", ())]
    for each, home in sorted(rows, key=lambda row: -row[0]["rate_per_s"])[:ROWS]:
        reached = "–" if each["subscriptions"] is None else f"{each['subscriptions']:,}"
        state = "connected" if each["connected"] else "away"
        figures = (_figure(each["rate_per_s"]), f"{each['published']:,}", reached)
        table.add_row(Text(each["client"]), Text(home), state, *figures)
    return table


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f} ms"
