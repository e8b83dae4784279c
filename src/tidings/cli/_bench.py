"""`tidings bench`: load for a running network, and what became of it."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli import _client_options as options
from tidings.cli._output import Json, print_json, print_table, progress_bar, reporting
from tidings.errors import InputError
from tidings.model.units import percent

if TYPE_CHECKING:
    from tidings.live.bench import BenchEvent, Figures

__all__ = ["EPILOG", "bench"]

EPILOG = (
    "Try:\n\ntidings bench 127.0.0.1:7001 --subscribe-at 127.0.0.1:7003 --rate '1000 /s' --lifetime '2 s'\n\n"
    'tidings bench 127.0.0.1:7001 - --filter "price > {n}" --subscribers 20 < events.jsonl\n\n'
    "In a filter, {n} is the subscriber's number, from 0, and {symbol} is one of S0 to S9 in turn. "
    "Lines are as for publish."
)
EVENTS_MAX = 100_000


_Events = Annotated[
    str | None,
    typer.Argument(metavar="[-]", help="'-' publishes the JSON lines of standard input repeatedly."),
]
_SubscribeAt = Annotated[
    list[str] | None,
    typer.Option(
        "--subscribe-at",
        metavar="HOST:PORT",
        help="The subscribers' brokers, used in turn; repeatable (default: the publishers' broker).",
    ),
]
_Subscribers = Annotated[int, typer.Option("--subscribers", min=0, max=10_000, help="The number of subscribers.")]
_Rate = Annotated[
    str | None,
    typer.Option(
        "--rate", help="Events of all publishers together, like '1000 /s'.", show_default="as fast as accepted"
    ),
]
_Filter = Annotated[
    str | None,
    typer.Option(
        "--filter",
        help="The filter of each subscriber; may contain {n} and {symbol}.",
        show_default="one symbol and half of its prices",
    ),
]
_Lifetime = Annotated[
    str | None, typer.Option("--lifetime", help="Lifetime of events that have none of their own, like '2 s'.")
]
_MaxDelay = Annotated[str | None, typer.Option("--max-delay", help="The deadline of subscriptions, like '500 ms'.")]
_InFlight = Annotated[
    int,
    typer.Option("--in-flight", min=1, max=65_536, help="How many events of a publisher may await acceptance."),
]
_Processes = Annotated[
    int, typer.Option("--processes", min=1, max=256, help="The number of processes that share the clients.")
]


def bench(
    address: options.Address,
    events: _Events = None,
    subscribe_at: _SubscribeAt = None,
    publishers: Annotated[int, typer.Option("--publishers", min=1, max=10_000, help="The number of publishers.")] = 1,
    subscribers: _Subscribers = 10,
    rate: _Rate = None,
    size: Annotated[str, typer.Option("--size", help="The size of generated payloads.")] = "1 kB",
    filter: _Filter = None,
    lifetime: _Lifetime = None,
    max_delay: _MaxDelay = None,
    duration: Annotated[str, typer.Option("--duration", help="How long to publish.")] = "10 s",
    warmup: Annotated[str, typer.Option("--warmup", help="How much of the duration is not measured.")] = "1 s",
    in_flight: _InFlight = 1_024,
    processes: _Processes = 1,
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
    """Put load on a running network and measure how it keeps up.

    Clients are named NAME-p0, NAME-p1, ... and NAME-s0, NAME-s1, ...; the
    exit code is 1 if an event was lost, duplicated or not accepted. Latency
    is measured from the time an event was due. If one process of clients is
    slower than the brokers, use --processes.
    """
    with reporting(json=json):
        import uuid

        from tidings.live.bench import DEFAULT_FILTER, Load, default_events, filters_of, run_bench
        from tidings.model.units import parse_quantity

        if events not in (None, "-"):
            raise InputError(f"events are read from standard input: use '-' instead of {events!r}")
        given = options.connection_options(None, token_file, secret_file, authority, certificate, key, server_name)
        lifetime_s = None if lifetime is None else parse_quantity(lifetime, "time")
        load = Load(
            publish_at=(address,),
            subscribe_at=tuple(subscribe_at or (address,)),
            events=_given(lifetime_s) if events else default_events(parse_quantity(size, "size"), lifetime_s),
            filters=filters_of(filter or ("TRUE" if events else DEFAULT_FILTER), subscribers),
            publishers=publishers,
            rate_per_s=None if rate is None else parse_quantity(rate, "rate"),
            seconds=parse_quantity(duration, "time"),
            warmup_s=parse_quantity(warmup, "time"),
            max_delay_s=None if max_delay is None else parse_quantity(max_delay, "time"),
            in_flight=in_flight,
            advertise=advertise,
            name=name or f"bench-{uuid.uuid4().hex[:8]}",
            connection=given,
        )
        with progress_bar("publishing") as progress:
            found = run_bench(load, processes=processes, progress=progress)
        if json:
            print_json(found)
        else:
            _print(found)
        if found.lost or found.duplicated or found.refused or found.unconfirmed:
            raise typer.Exit(1)


def _given(lifetime_s: float | None) -> "tuple[BenchEvent, ...]":
    """The events of standard input, at most EVENTS_MAX."""
    from tidings.cli._publish import read_event
    from tidings.live.bench import BenchEvent

    found: list[BenchEvent] = []
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if line.strip():
            attributes, payload, own_s = read_event(line, number)
            found.append(BenchEvent(attributes=attributes, payload=payload, lifetime_s=own_s or lifetime_s))
            if len(found) > EVENTS_MAX:
                raise InputError(f"line {number}: more than {EVENTS_MAX:,} events; give fewer, since they are repeated")
    return tuple(found)


def _print(found: "Figures") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_row("accepted", f"{found.accepted_per_s:,.0f} events/s")
    table.add_row("delivered", f"{found.deliveries_per_s:,.0f} deliveries/s")
    for label, value in (("p50", found.latency_p50_ms), ("p99", found.latency_p99_ms)):
        table.add_row(f"latency {label}", "-" if value is None else f"{value:,.4g} ms")
    table.add_row("on time", "no deadline" if found.on_time is None else percent(found.on_time))
    counts = {"accepted": found.accepted, "expired": found.expired, "refused": found.refused}
    counts["unconfirmed"] = found.unconfirmed
    table.add_row("events", ", ".join(f"{count:,} {what}" for what, count in counts.items()))
    table.add_row("deliveries", f"{found.delivered:,} of {found.expected:,}")
    table.add_row("too late", f"{found.too_late:,}")
    table.add_row("lost", f"{found.lost:,}")
    table.add_row("duplicated", f"{found.duplicated:,}")
    print_table(Console(highlight=False), table)
