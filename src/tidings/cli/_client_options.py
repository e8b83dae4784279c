"""The options with which every client command connects."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from tidings.live import Tidings

__all__ = [
    "Address",
    "Addresses",
    "Authority",
    "Certificate",
    "ClientName",
    "Key",
    "SecretFile",
    "ServerName",
    "TokenFile",
    "connected",
    "connection_options",
]

SLOW_S: Final = 2.0
"""A connection that takes longer is reported, whether it is the first or a later one."""
_POLL_S: Final = 0.1
TOKEN_VARIABLE = "TIDINGS_TOKEN"
SECRET_VARIABLE = "TIDINGS_SECRET"

Address = Annotated[
    str, typer.Argument(metavar="HOST:PORT", help="The address of the home broker.", show_default=False)
]
Addresses = Annotated[
    str,
    typer.Argument(
        metavar="HOST:PORT[,HOST:PORT]",
        help="Addresses of brokers; the first that answers becomes the home broker.",
        show_default=False,
    ),
]
ClientName = Annotated[str | None, typer.Option("--name", help="The client's name.", show_default="a random one")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help=f"A file with the token (default: the token in ${TOKEN_VARIABLE})."
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help=f"A file with the client's secret, for networks without tokens; created if missing "
        f"(default: the secret in ${SECRET_VARIABLE}).",
    ),
]
Authority = Annotated[
    Path | None,
    typer.Option("--authority", metavar="PEM", help="Use TLS; the authority that signed the broker's certificate."),
]
Certificate = Annotated[Path | None, typer.Option("--certificate", metavar="PEM", help="The client's certificate.")]
Key = Annotated[Path | None, typer.Option("--key", metavar="FILE", help="The key of the certificate.")]
ServerName = Annotated[
    str | None, typer.Option("--server-name", help="The name in the broker's certificate.", show_default="the host")
]


def connection_options(
    name: str | None,
    token_file: Path | None,
    secret_file: Path | None,
    authority: Path | None,
    certificate: Path | None,
    key: Path | None,
    server_name: str | None,
) -> dict[str, Any]:
    """What `connect` is given."""
    token = os.environ.get(TOKEN_VARIABLE)
    if token_file is not None:
        from tidings.live.security import read_secret

        token = read_secret(token_file)
    return {
        "name": name,
        "token": token,
        "secret": os.environ.get(SECRET_VARIABLE) if secret_file is None else None,
        "secret_file": secret_file,
        "authority": authority,
        "certificate": certificate,
        "key": key,
        "server_name": server_name,
    }


@asynccontextmanager
async def connected(addresses: str, given: dict[str, Any]) -> "AsyncIterator[Tidings]":
    """The client of a command; whenever its broker cannot be reached for SLOW_S, standard error says so."""
    import asyncio

    from tidings.live import connect

    client = connect(addresses.split(","), **given)
    watch = asyncio.create_task(_report_waits(client, addresses))
    try:
        async with client:
            yield client
    finally:
        watch.cancel()


async def _report_waits(client: "Tidings", addresses: str) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    since_s, was_connected, is_told = loop.time(), False, False
    while True:
        await asyncio.sleep(_POLL_S)
        if client.is_connected:
            if is_told:
                typer.echo(f"connected to {client.home}", err=True)
            since_s, was_connected, is_told = loop.time(), True, False
        elif not is_told and loop.time() - since_s >= SLOW_S:
            is_told = True
            what = "the connection is lost" if was_connected else f"still connecting to {addresses}"
            typer.echo(f"{what}{f' ({client.trouble})' if client.trouble else ''}; trying again", err=True)
