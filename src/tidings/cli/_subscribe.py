"""`tidings subscribe`: events as JSON lines on standard output."""

import base64
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli import _client_options as options
from tidings.cli._output import Json, print_json, reporting
from tidings.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

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
        str,
        typer.Option(
            "--late",
            help="Deliver events up to this long after the deadline, marked as late, after all that can still be in "
            "time; `later` is an hour.",
        ),
    ] = "0 s",
    order: Annotated[str | None, typer.Option("--order", help="The ordering policy.", show_default="none")] = None,
    conflate: Annotated[
        str | None,
        typer.Option(
            "--conflate",
            metavar="ATTRIBUTES",
            help="While events wait at the broker, keep only the latest of those with equal values of this attribute "
            "(or these, with commas in between).",
        ),
    ] = None,
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
    json: Json = False,
) -> None:
    """Print the events that match a filter, one JSON object per line.

    Runs until interrupted, unless --count or --seconds is given. With --json
    one of them is needed: the events are then printed as one document, at
    the end.
    """
    with reporting(json=json):
        import asyncio

        from tidings.model.units import parse_quantity

        if json and count is None and seconds is None:
            raise InputError("--json prints one document at the end: add --count or --seconds")
        terms = {
            "max_delay_s": None if max_delay is None else parse_quantity(max_delay, "time"),
            "price": price,
            "late": late if late in ("drop", "later") else None,
            "late_s": None if late in ("drop", "later") else parse_quantity(late, "time"),
            "order": order,
            "conflate": conflate,
            "name": subscription,
        }
        collected: list[Delivery] = []
        given = options.connection_options(name, token_file, secret_file, authority, certificate, key, server_name)
        try:
            show = collected.append if json else _write
            asyncio.run(_subscribe(address, given | {"durable": durable}, filter, terms, count, seconds, show))
        except BrokenPipeError:
            sys.stderr.close()  # the reader has gone, as `head` does when it has enough
            return
        if json:
            print_json({"events": [_fields(event) for event in collected]})


async def _subscribe(
    address: str,
    given: dict[str, Any],
    filter: str,
    terms: dict[str, Any],
    count: int | None,
    seconds: float | None,
    show: "Callable[[Delivery], None]",
) -> None:
    """Show each event as it comes, until there were `count` or the time is up."""
    import asyncio
    import contextlib

    async with options.connected(address, given) as client:
        events = await client.subscribe(filter, **terms)
        typer.echo("subscribed", err=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                left = count
                async for event in events:
                    show(event)
                    if not events.held:
                        sys.stdout.buffer.flush()
                    if left is not None:
                        left -= 1
                        if not left:
                            break
        sys.stdout.buffer.flush()


def _write(event: "Delivery") -> None:
    import msgspec

    sys.stdout.buffer.write(msgspec.json.encode(_fields(event)) + b"\n")


def _fields(event: "Delivery") -> dict[str, Any]:
    fields: dict[str, Any] = {
        "publisher": event.publisher,
        "sequence": event.sequence,
        "age_s": round(event.age_s, 6),
        "late": event.late,
        "attributes": event.attributes,
    }
    if event.payload:
        try:
            fields["payload"] = event.payload.decode()
        except UnicodeDecodeError:
            fields["payload_base64"] = base64.b64encode(event.payload).decode()
    return fields
