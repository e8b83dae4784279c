"""`tidings status` and `tidings certificates`: how a live network is, and certificates to try one with."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tidings.cli._output import Json, print_json, reporting

__all__ = ["CERTIFICATES_EPILOG", "STATUS_EPILOG", "certificates", "status"]

STATUS_EPILOG = "Try:\n\ntidings status examples/live/network.toml"
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
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("broker")
    table.add_column("state")
    for heading in ("busy", "clients", "queued", "stored", "sent", "on time"):
        table.add_column(heading, justify="right")
    table.add_column("links")
    for broker in found:
        if not broker["up"]:
            table.add_row(broker["name"], f"[red]down[/red]: {broker['why']}")
            continue
        state = "draining" if broker["draining"] else "up" if broker["ready"] else "starting"
        links = {name: "up" if peer["up"] else "down" for name, peer in broker["neighbours"].items()}
        links |= dict.fromkeys(broker["absent"], "down")
        table.add_row(
            broker["name"],
            state,
            f"{broker['utilisation']:.0%}",
            f"{broker['clients_connected']:,} of {broker['clients']:,}",
            f"{broker['queued']:,}",
            f"{broker['stored']:,}",
            f"{broker['transfers']:,}",
            "-" if broker["on_time"] is None else f"{broker['on_time']:.2%}",
            ", ".join(f"{name} {state}" for name, state in sorted(links.items())) or "none",
        )
    Console(highlight=False).print(table)


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
