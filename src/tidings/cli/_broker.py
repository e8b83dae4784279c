"""`tidings broker` and `tidings up`: one broker of a network, or all of them on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli._output import Json, print_json, reporting
from tidings.cli._serve import serve_one

if TYPE_CHECKING:
    from tidings.live import Network

__all__ = ["BROKER_EPILOG", "UP_EPILOG", "broker", "up"]

BROKER_EPILOG = (
    "Try:\n\ntidings broker examples/live/network.toml --name b1\n\ntidings broker examples/live/network.toml --check"
)
UP_EPILOG = "Try:\n\ntidings up examples/live/network.toml"

_File = Annotated[Path, typer.Argument(metavar="NETWORK", help="The network file, in TOML.", show_default=False)]
_Check = Annotated[bool, typer.Option("--check", help="Check the file, print a summary and exit.")]


def broker(
    network: _File,
    name: Annotated[str, typer.Option("--name", help="The broker to run; optional if the network has only one.")] = "",
    check: _Check = False,
    json: Json = False,
) -> None:
    """Run one broker of a network.

    On SIGTERM it drains its queues and exits. It logs JSON lines to
    standard error.
    """
    with reporting(json=json):
        if check:
            from tidings.live import read_network

            _show(read_network(network), json=json)
        else:
            serve_one(network, name)


def up(network: _File, check: _Check = False, json: Json = False) -> None:
    """Run all brokers of a network on this machine.

    It restarts brokers that die, and runs until SIGTERM.
    """
    with reporting(json=json):
        from tidings.live import read_network

        read = read_network(network)
        if check:
            _show(read, json=json)
            return
        from tidings.live.broker._serving import Supervisor
        from tidings.live.operations._logs import Log

        Supervisor(read, Log("up")).run()


def _show(network: "Network", *, json: bool) -> None:
    """What the file says; certificates are read too."""
    from tidings.live.security._tls import dialling_context, listening_context

    for name in network.brokers:
        tls = network.tls_of(name)
        if tls is not None:
            listening_context(tls)
            dialling_context(tls)
    said = network.document
    facts = {
        "brokers": {
            name: {"listen": str(broker.listen), "neighbours": sorted(network.links[name])}
            for name, broker in network.brokers.items()
        },
        "scheme": said.network.scheme,
        "strategy": said.network.strategy,
        "tls": said.tls is not None,
        "tokens": len(network.tokens),
        "rules": len(network.rules),
    }
    if json:
        print_json(facts)
        return
    links = sum(len(others) for others in network.links.values()) // 2
    typer.echo(f"{network.path}: OK: {len(network.brokers)} brokers, {links} links, {said.network.scheme}")
