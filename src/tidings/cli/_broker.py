"""`tidings broker` and `tidings up`: one broker of a network, or all of them on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli._output import Json, print_json, reporting
from tidings.cli._serve import is_terminal, serve_one

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

    On SIGTERM it drains its queues and exits. It logs to standard error:
    JSON lines, or plain text on a terminal unless --json is given.
    """
    with reporting(json=json):
        if check:
            from tidings.live import read_network

            read = read_network(network)
            for warning in read.unknown_hosts():
                typer.echo(f"warning: {warning}; it is dialled until it answers", err=True)
            _show(read, json=json)
        else:
            serve_one(network, name, is_text=is_terminal(json=json))


def up(network: _File, check: _Check = False, json: Json = False) -> None:
    """Run all brokers of a network on this machine.

    It restarts brokers that die, and runs until Ctrl-C or SIGTERM. It logs
    to standard error: JSON lines, or plain text on a terminal unless --json
    is given.
    """
    with reporting(json=json):
        from tidings.errors import ConfigurationError
        from tidings.live import read_network

        read = read_network(network)
        for why in read.unknown_hosts():
            raise ConfigurationError(f"{network}: {why}; `tidings up` runs all brokers on this machine")
        if check:
            _show(read, json=json)
            return
        from tidings.live.broker import Supervisor
        from tidings.live.operations import Log

        Supervisor(read, Log("up", is_text=is_terminal(json=json))).run()


def _show(network: "Network", *, json: bool) -> None:
    """Print a summary of a network file; certificates are read too."""
    from tidings.live.security import dialling_context, listening_context

    for name in network.brokers:
        tls = network.tls_of(name)
        if tls is not None:
            listening_context(tls)
            dialling_context(tls)
    document = network.document
    facts = {
        "brokers": {
            name: {"listen": str(broker.listen), "neighbours": sorted(network.links[name])}
            for name, broker in network.brokers.items()
        },
        "scheme": document.network.scheme,
        "strategy": document.network.strategy,
        "tls": document.tls is not None,
        "tokens": len(network.tokens),
        "rules": len(network.rules),
    }
    if json:
        print_json(facts)
        return
    links = sum(len(others) for others in network.links.values()) // 2
    typer.echo(f"{network.path}: OK: {len(network.brokers)} brokers, {links} links, {document.network.scheme}")
