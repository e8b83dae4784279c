"""`tidings subscribe`: events as JSON lines on standard output."""

import base64
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli import _client_options as options
from tidings.cli._output import reporting

if TYPE_CHECKING:
    from tidings.live import Delivery

__all__ = ["EPILOG", "subscribe"]

EPILOG = "Try:\n\ntidings subscribe 127.0.0.1:7001 \"price > 10\" --max-delay '2 s' --order ours-record"


def subscribe(
    address: options.Addresses,
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="The filter, in SQL.")] = "TRUE",
    max_delay: Annotated[
        str | None, typer.Option("--max-delay", help="The deadline: how old an event may be, like '2 s'.")
    ] = None,
    price: Annotated[float, typer.Option("--price", min=0.0, help="What an on-time delivery is worth.")] = 1.0,
    late: Annotated[
        str, typer.Option("--late", help="Deliver events up to this long after the deadline, marked as late.")
    ] = "0 s",
    order: Annotated[str | None, typer.Option("--order", help="The ordering policy.", show_default="none")] = None,
    subscription: Annotated[str, typer.Option("--subscription", help="The name of the subscription.")] = "s1",
    durable: Annotated[bool, typer.Option("--durable", help="Keep the subscription after exit; needs --name.")] = False,
    count: Annotated[int | None, typer.Option("--count", min=1, help="Exit after this many events.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.0, help="Exit after this many seconds.")] = None,
    name: options.ClientName = None,
    token_file: options.TokenFile = None,
    secret_file: options.SecretFile = None,
    authority: options.Authority = None,
    certificate: options.Certificate = None,
    key: options.Key = None,
    server_name: options.ServerName = None,
) -> None:
    """Print the events that match a filter, one JSON object per line.

    Runs until interrupted, unless --count or --seconds is given.
    """
    with reporting(json=False):
        import asyncio

        from tidings.model.units import parse_quantity

        terms = {
            "max_delay_s": None if max_delay is None else parse_quantity(max_delay, "time"),
            "price": price,
            "late_s": parse_quantity(late, "time"),
            "order": order,
            "name": subscription,
        }
        given = options.connection_options(name, token_file, secret_file, authority, certificate, key, server_name)
        try:
            asyncio.run(_subscribe(address, given | {"durable": durable}, filter, terms, count, seconds))
        except BrokenPipeError:
            # Whoever read has gone, which is their way of saying that it was enough.
            sys.stderr.close()


async def _subscribe(
    address: str, given: dict[str, Any], filter: str, terms: dict[str, Any], count: int | None, seconds: float | None
) -> None:
    import asyncio
    import contextlib

    from tidings.live import connect

    async with connect(address.split(","), **given) as client:
        events = await client.subscribe(filter, **terms)
        typer.echo("subscribed", err=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                left = count
                async for event in events:
                    sys.stdout.buffer.write(_line(event))
                    if not events.held:
                        sys.stdout.buffer.flush()
                    if left is not None:
                        left -= 1
                        if not left:
                            break
        sys.stdout.buffer.flush()


def _line(event: "Delivery") -> bytes:
    import msgspec

    said: dict[str, Any] = {
        "publisher": event.publisher,
        "sequence": event.sequence,
        "age_s": round(event.age_s, 6),
        "late": event.late,
        "attributes": event.attributes,
    }
    if event.payload:
        try:
            said["payload"] = event.payload.decode()
        except UnicodeDecodeError:
            said["payload_base64"] = base64.b64encode(event.payload).decode()
    return msgspec.json.encode(said) + b"\n"
