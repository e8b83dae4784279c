"""`tidings status`, `tidings reload`, `tidings certificates` and `tidings token`: a live network from outside."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli._output import Json, print_json, print_table, reporting
from tidings.cli._troubles import print_verdict
from tidings.model.units import percent

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.live import Network
    from tidings.live.operations import Verdict

__all__ = ["CERTIFICATES_EPILOG", "RELOAD_EPILOG", "STATUS_EPILOG", "certificates", "reload", "status", "token"]

STATUS_EPILOG = "Try:\n\ntidings status examples/live/network.toml"
PATIENCE_S = 20.0
SUBSCRIBERS_SHOWN = 20
_MINUTE_S = 60.0
PIPE_COLUMNS = 160  # where nobody says how wide a line may be
RELOAD_EPILOG = "Try:\n\ntidings reload examples/live/network.toml"
CERTIFICATES_EPILOG = "Try:\n\ntidings certificates certificates b1 b2 desk-1"
TOKEN_EPILOG = "Try:\n\ntidings token new --file brokers.token"

token = typer.Typer(help="Make the tokens that clients and brokers authenticate with.", no_args_is_help=True)


def status(
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="The network file, in TOML.", show_default=False)],
    json: Json = False,
) -> None:
    """Show the state of a running network.

    Begins with a verdict: who is late, since when, why, and what to do. Then
    lists every broker and its links, and the subscriptions that cannot be
    reached or are not on time. The exit code is 1 if a broker does not answer.
    """
    with reporting(json=json):
        import asyncio

        from tidings.live import read_network
        from tidings.live.operations import ask_network, network_status

        found = network_status(asyncio.run(ask_network(read_network(network))), file=str(network))
        if json:
            print_json(found)
        else:
            _print(found["verdict"], found["brokers"], found["subscribers"])
        if not all(broker["up"] for broker in found["brokers"]):
            raise typer.Exit(1)


def _print(verdict: "Verdict", brokers: list[dict[str, Any]], subscribers: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPE_COLUMNS)
    print_verdict(console, verdict)
    console.print()
    print_table(console, _brokers(brokers))
    for broker in brokers:
        for home, each in broker.get("parked", {}).items():
            size = f"{_count(each['events'], 'event')}, {each['bytes'] / 1e6:,.1f} MB, oldest {each['oldest_s']:,.0f} s"
            console.print(Text(f"{broker['name']} stores events for {home}, which cannot be reached: {size}"))
        copies = broker.get("copies")
        if copies and copies["waiting"]:
            keeper = f"at {copies['keeper']}" if copies["keeper"] else "and no neighbour can keep one"
            console.print(
                Text(f"{broker['name']}: {_count(copies['waiting'], 'event')} without a second copy, {keeper}")
            )
    for line in _moves(brokers):
        console.print(Text(line))
    lacking = {name: each for name, each in subscribers.items() if _lacks(each)}
    if lacking:
        console.print("\nNot reached, or not on time in the last minute:")
        print_table(console, _subscribers(dict(islice(lacking.items(), SUBSCRIBERS_SHOWN))))
    if len(lacking) > SUBSCRIBERS_SHOWN:
        console.print(f"and {len(lacking) - SUBSCRIBERS_SHOWN:,} more: see --json")


def _moves(brokers: list[dict[str, Any]]) -> list[str]:
    """The moves under way, one line each, and how many there were."""
    found = [broker["moves"] for broker in brokers if broker["up"]]
    under_way = [each for moves in found for each in moves["under_way"]]
    lines = [
        f"{each['client']} moves from {each['from']} to {each['to']}: {each['phase']} for {each['phase_s']:,.1f} s "
        f"(by {each['by']})"
        for each in under_way[:SUBSCRIBERS_SHOWN]
    ]
    total = {key: sum(moves[key] for moves in found) for key in ("moving", "asked", "done", "called_off")}
    if total["moving"] > len(lines):
        lines.append(f"and {_count(total['moving'] - len(lines), 'move')} more under way: see --json")
    if any(total.values()):
        lines.append(
            f"Moves since the start: {total['asked']:,} asked for, {total['done']:,} done, "
            f"{total['called_off']:,} called off, {total['moving']:,} under way"
        )
    return lines


def _brokers(brokers: list[dict[str, Any]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, collapse_padding=True)
    table.add_column("broker", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for heading in ("busy", "clients", "queued", "stored", "on time,\nlast min", "since\nstart", "dropped"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("links")
    for broker in brokers:
        if not broker["up"]:
            table.add_row(Text(broker["name"]), "[red]down[/red]")
            continue
        state = "draining" if broker["draining"] else "up" if broker["ready"] else "starting"
        links = {name: "up" if peer["up"] else "down" for name, peer in broker["neighbours"].items()}
        links |= dict.fromkeys(broker["absent"], "down")
        deliveries = broker["deliveries"]
        table.add_row(
            Text(broker["name"]),
            state,
            percent(broker["utilisation"], 0),
            f"{broker['clients_connected']:,} of {broker['clients']:,}",
            f"{broker['queued']:,}",
            f"{broker['stored']:,}",
            percent(deliveries["last_minute"]["on_time_reliability"]),
            percent(deliveries["on_time_reliability"]) + _within(deliveries["interval"]),
            f"{broker['dropped']:,}",
            Text(", ".join(f"{name} {state}" for name, state in sorted(links.items())) or "none"),
        )
    return table


def _lacks(subscriber: dict[str, Any]) -> bool:
    """Whether a subscription is not reached, or did not get all of the last minute on time."""
    recent = subscriber["last_minute"] or {"on_time_reliability": None}
    return not subscriber["connected"] or recent["on_time_reliability"] not in (None, 1.0)


def _subscribers(rows: dict[str, dict[str, Any]]) -> "Table":
    """What became of the events of these subscriptions."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("subscription", "at", "state"):
        table.add_column(heading)
    for heading in ("on time", "p99 delay"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("events")
    for name, each in rows.items():
        state = "broker down" if each["affected"] else "connected" if each["connected"] else "away"
        recent = each["last_minute"]
        is_recent = recent is not None and recent["on_time_reliability"] is not None
        shown = recent if is_recent else each
        delay_ms = shown["delay_ms_p99"]
        events = "not known" if each["affected"] else _events(shown, each["under_way"])
        if is_recent and each["since_s"] < _MINUTE_S:
            events = f"in the last {each['since_s']:.0f} s: {events}"
        table.add_row(
            Text(name),
            Text(each["broker"]),
            state,
            percent(shown["on_time_reliability"]) + ("" if is_recent else _within(each["interval"])),
            "–" if delay_ms is None else f"{delay_ms:,.1f} ms",
            Text(events if is_recent or each["affected"] else f"since the start: {events}"),
        )
    return table


def _events(figures: dict[str, Any], under_way: int) -> str:
    """What happened to events, in words; of the last minute, unless stated otherwise."""
    parts = [f"{figures['matched']:,} matched"]
    parts += [f"{figures[key]:,} {words}" for key, words in (("on_time", "on time"), ("late", "late")) if figures[key]]
    parts += [f"{many:,} dropped by {by}" for by, many in figures["dropped_by"].items()]
    parts += [f"{figures['replaced']:,} replaced"] if figures.get("replaced") else []
    parts += [f"{figures['lost']:,} lost"] if figures["lost"] else []
    return ", ".join([*parts, f"{under_way:,} under way"] if under_way else parts)


def _count(many: int, what: str) -> str:
    return f"{many:,} {what}" if many == 1 else f"{many:,} {what}s"


def _within(interval: dict[str, Any] | None) -> str:
    """The 95 % interval of a share since the start, below it; in the first minutes there is none."""
    return "" if interval is None else f"\n{percent(interval['low'])} to {percent(interval['high'])}"


def reload(
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="The network file, in TOML.", show_default=False)],
    json: Json = False,
) -> None:
    """Apply a changed network file to a running `tidings up`.

    Starts new brokers, drains and stops removed ones, and changes links.
    Returns when that is done; the exit code is 1 if it takes longer than
    twice the network's drain time plus 20 s. A change that cannot be made
    while brokers run is refused, and nothing is changed.
    """
    with reporting(json=json):
        import asyncio

        from tidings.errors import TidingsError
        from tidings.live import read_network
        from tidings.live.operations import ask_to_reload

        read = read_network(network)
        reloaded = ask_to_reload(read)
        missing = asyncio.run(_wait_for(read))
        if missing:
            raise TidingsError(f"{reloaded.change}, but not complete: {missing}; see the log of `tidings up`")
        if json:
            print_json({"change": reloaded.change, "brokers": sorted(read.brokers)})
        else:
            typer.echo(f"{network}: {reloaded.change}")


async def _wait_for(network: "Network") -> str:
    """Wait until the brokers are those of the file, and hear each other; what is missing when time is up."""
    import asyncio
    import time

    from tidings.live.operations import ask_network, read_supervision

    until_s = time.monotonic() + 2 * network.document.network.drain_s + PATIENCE_S
    while True:
        found = await ask_network(network)
        extra = set(read_supervision(network).brokers) - network.brokers.keys()
        missing = [f"broker {name!r} has not stopped" for name in sorted(extra)]
        for broker in found:
            if not broker["up"]:
                missing.append(f"broker {broker['name']!r} is down ({broker['why']})")
                continue
            silent = {name for name, peer in broker["neighbours"].items() if not peer["up"]} | {*broker["absent"]}
            missing += [f"broker {broker['name']!r} is not connected to {name!r}" for name in sorted(silent)]
            if {*broker["neighbours"], *broker["absent"]} != network.links[broker["name"]]:
                missing.append(f"broker {broker['name']!r} has different links")
        if not missing or time.monotonic() > until_s:
            return ", ".join(missing)
        await asyncio.sleep(0.1)


def certificates(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory to write to.", show_default=False)],
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names of brokers and clients.", show_default=False)
    ],
    days: Annotated[float, typer.Option("--days", help="How many days the certificates are valid.")] = 365.0,
    json: Json = False,
) -> None:
    """Make a test authority and certificates for TLS; not for production."""
    with reporting(json=json):
        from tidings.live.security import make_certificates

        written = make_certificates(directory, tuple(names), days=days)
        if json:
            print_json({"written": [str(path) for path in written]})
        else:
            for path in written:
                typer.echo(str(path))


@token.command(name="new", epilog=TOKEN_EPILOG)
def new_token(
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Write the token to a new file that only you can read."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a random token and print it or write it to a file."""
    with reporting(json=json):
        from tidings.errors import InputError
        from tidings.live.security import new_secret, write_secret

        made = new_secret()
        if file is not None:
            try:
                is_new = write_secret(file, made)
            except OSError as error:
                raise InputError(f"{file}: cannot be written: {error.strerror or error}") from None
            if not is_new:
                raise InputError(f"{file} already exists: choose another name, or remove it")
        if json:
            print_json({"token": made} if file is None else {"file": str(file)})
        else:
            typer.echo(made if file is None else str(file))
