"""The options with which every client command connects."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

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
    "connection_options",
]

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
        from tidings.live.security._secrets import read_secret

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
