"""`tidings publish`: events as JSON lines on standard input."""

import base64
import sys
from typing import Annotated, Any

import typer

from tidings.cli import _client_options as options
from tidings.cli._output import Json, print_json, reporting
from tidings.errors import InputError, TidingsError

__all__ = ["EPILOG", "publish", "read_event"]

EPILOG = (
    'Try:\n\necho \'{"symbol": "YHOO", "price": 17.2}\' | tidings publish 127.0.0.1:7001 --lifetime \'5 s\'\n\n'
    'A line is an event\'s attributes, or an object with "attributes" and, if wanted, "payload" (text) or '
    '"payload_base64", and "lifetime_s".'
)


def publish(
    address: options.Addresses,
    lifetime: Annotated[
        str | None, typer.Option("--lifetime", help="Lifetime of events that have none of their own, like '5 s'.")
    ] = None,
    advertise: Annotated[str, typer.Option("--advertise", help="A filter that all events match.")] = "TRUE",
    name: options.ClientName = None,
    token_file: options.TokenFile = None,
    secret_file: options.SecretFile = None,
    authority: options.Authority = None,
    certificate: options.Certificate = None,
    key: options.Key = None,
    server_name: options.ServerName = None,
    json: Json = False,
) -> None:
    """Publish events from JSON lines on standard input.

    Returns when the broker has accepted all of them.
    """
    with reporting(json=json):
        import asyncio

        from tidings.model.units import parse_quantity

        lifetime_s = None if lifetime is None else parse_quantity(lifetime, "time")
        given = options.connection_options(name, token_file, secret_file, authority, certificate, key, server_name)
        accepted, refused = asyncio.run(_publish(address, given, advertise, lifetime_s))
        if json:
            print_json({"accepted": accepted, "refused": refused})
        else:
            typer.echo(f"{accepted} events accepted" + (f", {refused} refused" if refused else ""), err=True)
        if refused:
            raise typer.Exit(1)


async def _publish(address: str, given: dict[str, Any], advertise: str, lifetime_s: float | None) -> tuple[int, int]:
    import asyncio

    accepted = refused = 0

    def count(outcome: "asyncio.Future[int]") -> None:
        nonlocal accepted, refused
        error = outcome.exception()
        if error is None:
            accepted += 1
        else:
            refused += 1
            typer.echo(f"error: {error}", err=True)

    loop = asyncio.get_running_loop()
    async with options.connected(address, given) as client:
        await client.advertise(advertise)
        number = 0
        while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
            number += 1
            if line.strip():
                attributes, payload, own_s = read_event(line, number)
                try:
                    outcome = await client.offer(attributes, payload=payload, lifetime_s=own_s or lifetime_s)
                except InputError as error:
                    raise InputError(f"line {number}: {error}") from None
                outcome.add_done_callback(count)
        await client.flush()
        await asyncio.sleep(0)  # the last outcomes are counted in the next turn
    return accepted, refused


def read_event(line: bytes, number: int) -> tuple[dict[str, Any], bytes, float | None]:
    """The attributes, payload and lifetime in a line."""
    import msgspec

    try:
        event = msgspec.json.decode(line)
        if not isinstance(event, dict):
            raise InputError(f"line {number}: an event must be a JSON object of attributes")
        if not isinstance(event.get("attributes"), dict):
            return _plain(event, number), b"", None
        payload = event.get("payload", "").encode()
        if "payload_base64" in event:
            payload = base64.b64decode(event["payload_base64"], validate=True)
        lifetime_s = event.get("lifetime_s")
        return _plain(event["attributes"], number), payload, None if lifetime_s is None else float(lifetime_s)
    except TidingsError:
        raise
    except (msgspec.DecodeError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"line {number}: {error}") from None


def _plain(attributes: dict[str, Any], number: int) -> dict[str, Any]:
    """Attributes that are null are missing; others have to be plain."""
    for key, value in attributes.items():
        if not isinstance(value, str | int | float | bool | None):
            raise InputError(f"line {number}: attribute {key!r} must be a string, a number or a boolean")
    return {key: value for key, value in attributes.items() if value is not None}
