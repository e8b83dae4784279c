"""`tidings status`, `tidings reload` and `tidings certificates`: a live network from outside."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli._output import Json, print_json, reporting

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.live import Network

__all__ = ["CERTIFICATES_EPILOG", "RELOAD_EPILOG", "STATUS_EPILOG", "certificates", "reload", "status"]

STATUS_EPILOG = "Try:\n\ntidings status examples/live/network.toml"
PATIENCE_S = 20.0
SUBSCRIBERS_SHOWN = 20
RELOAD_EPILOG = "Try:\n\ntidings reload examples/live/network.toml"
CERTIFICATES_EPILOG = "Try:\n\ntidings certificates certificates b1 b2 desk-1"


def status(
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="The network, in TOML.", show_default=False)],
    json: Json = False,
) -> None:
    """Ask all brokers of a network how they are; the exit code is 1 if one does not answer."""
    with reporting(json=json):
        import asyncio

        from tidings.live import read_network
        from tidings.live.operations._asking import ask_network

        found = asyncio.run(ask_network(read_network(network)))
        if json:
            print_json({"brokers": found})
        else:
            _print(found)
        if not all(broker["up"] for broker in found):
            raise typer.Exit(1)


def _print(found: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(_brokers(found))
    for broker in found:
        if not broker["up"]:
            console.print(Text(f"{broker['name']} is down: {broker['why']}"))
        elif broker["store"]["full"]:
            console.print(Text(f"the store of {broker['name']} is full: no event is acknowledged until there is room"))
    subscribers = [
        (broker, each) for broker in found for each in broker["subscribers"] if not broker["up"] or _lacks(each)
    ]
    if subscribers:
        console.print()
        console.print(_subscribers(subscribers[:SUBSCRIBERS_SHOWN]))
    if len(subscribers) > SUBSCRIBERS_SHOWN:
        console.print(f"and {len(subscribers) - SUBSCRIBERS_SHOWN:,} more: see --json")


def _brokers(found: list[dict[str, Any]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, collapse_padding=True)
    table.add_column("broker", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for heading in ("busy", "clients", "queued", "stored", "sent", "left\nin time", "late", "discarded"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("links")
    for broker in found:
        if not broker["up"]:
            table.add_row(Text(broker["name"]), "[red]down[/red]")
            continue
        state = "draining" if broker["draining"] else "up" if broker["ready"] else "starting"
        links = {name: "up" if peer["up"] else "down" for name, peer in broker["neighbours"].items()}
        links |= dict.fromkeys(broker["absent"], "down")
        table.add_row(
            Text(broker["name"]),
            state,
            f"{broker['utilisation']:.0%}",
            f"{broker['clients_connected']:,} of {broker['clients']:,}",
            f"{broker['queued']:,}",
            f"{broker['stored']:,}",
            f"{broker['transfers']:,}",
            "-" if broker["left_in_time"] is None else f"{broker['left_in_time']:.2%}",
            f"{broker['reported']['late']:,}",
            f"{broker['reported']['discarded']:,}",
            Text(", ".join(f"{name} {state}" for name, state in sorted(links.items())) or "none"),
        )
    return table


def _lacks(subscriber: dict[str, Any]) -> bool:
    """Whether a subscriber does not get all that it should."""
    reported = subscriber["reported"]
    return not subscriber["connected"] or bool(subscriber["dropped"] or reported["late"] or reported["discarded"])


def _subscribers(rows: "list[tuple[dict[str, Any], dict[str, Any]]]") -> "Table":
    """Subscribers that are away, or at a broker that is down, or lack something."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("subscriber", "at", "state"):
        table.add_column(heading)
    for heading in ("queued", "sent", "dropped", "on time", "late", "discarded"):
        table.add_column(heading, justify="right")
    for broker, each in rows:
        state = "connected" if each["connected"] else "away" if broker["up"] else "broker down"
        reported = each["reported"] or dict.fromkeys(("on_time", "late", "discarded"))
        counts = [each["queued"], each["sent"], each["dropped"], *reported.values()]
        shown = ["-" if count is None else f"{count:,}" for count in counts]
        table.add_row(Text(each["client"]), Text(broker["name"]), state, *shown)
    return table


def reload(
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="The network, in TOML.", show_default=False)],
    json: Json = False,
) -> None:
    """Have a running `tidings up` follow its file: start new brokers, let removed ones leave, change links.

    Returns when that is done; exit code 1 if it is not within twice the
    network's drain time and 20 s. What cannot change while brokers run is
    refused, and nothing is changed.
    """
    with reporting(json=json):
        import asyncio

        from tidings.errors import TidingsError
        from tidings.live import read_network
        from tidings.live.operations._supervision import ask_to_reload

        read = read_network(network)
        told = ask_to_reload(read)
        missing = asyncio.run(_wait_for(read))
        if missing:
            raise TidingsError(f"{told.change}; but by now {missing}: see the log of `tidings up`")
        if json:
            print_json({"change": told.change, "brokers": sorted(read.brokers)})
        else:
            typer.echo(f"{network}: {told.change}")


async def _wait_for(network: "Network") -> str:
    """Wait until the brokers are those of the file, and hear each other; what is missing when time is up."""
    import asyncio
    import time

    from tidings.live.operations._asking import ask_network
    from tidings.live.operations._supervision import read_supervision

    until_s = time.monotonic() + 2 * network.document.network.drain_s + PATIENCE_S
    while True:
        found = await ask_network(network)
        extra = set(read_supervision(network).brokers) - network.brokers.keys()
        missing = [f"broker {name!r} has not left" for name in sorted(extra)]
        for broker in found:
            if not broker["up"]:
                missing.append(f"broker {broker['name']!r} is down ({broker['why']})")
                continue
            silent = {name for name, peer in broker["neighbours"].items() if not peer["up"]} | {*broker["absent"]}
            missing += [f"{broker['name']!r} does not hear {name!r}" for name in sorted(silent)]
            if {*broker["neighbours"], *broker["absent"]} != network.links[broker["name"]]:
                missing.append(f"broker {broker['name']!r} has other links")
        if not missing or time.monotonic() > until_s:
            return ", ".join(missing)
        await asyncio.sleep(0.1)


def certificates(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write them.", show_default=False)],
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Brokers and clients.", show_default=False)],
    days: Annotated[float, typer.Option("--days", help="How long they are good.")] = 365.0,
    json: Json = False,
) -> None:
    """Make an authority and certificates for trying TLS locally; not for production."""
    with reporting(json=json):
        from tidings.live.security._certificates import make_certificates

        written = make_certificates(directory, tuple(names), days=days)
        if json:
            print_json({"written": [str(path) for path in written]})
        else:
            for path in written:
                typer.echo(str(path))
