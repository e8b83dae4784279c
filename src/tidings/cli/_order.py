"""`tidings order`: what receivers would do to put events in order, over recorded traces and over one that grows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli._output import Json, print_json, print_table, reporting
from tidings.cli._shares import share_option
from tidings.cli._spark_options import (
    ClockTolerance,
    Conf,
    Environment,
    MappingFile,
    Master,
    Remote,
    Verbose,
    parse_conf,
    require_spark,
)
from tidings.cli._watch import errors_as_lines
from tidings.errors import ConfigurationError
from tidings.model.units import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.ordering import Policy
    from tidings.pipeline.ordering import OrderReplay, OrderTotals, PairQuantiles

__all__ = ["app"]

app = typer.Typer(
    help="Compute from traces what ordering events at receivers would cost, on Spark.", no_args_is_help=True
)
EPILOG = (
    "Try:\n\ntidings order replay trace --policy P-0.05-25 --policy CST-30\n\n"
    "tidings order replay trace --policy ours-record --policy ours-quantile --out orders --json"
)
WATCH_EPILOG = "Try:\n\ntidings order watch trace --policy P-0.05-25 --policy ours-quantile --out orders --json"
DEFAULT_POLICIES = ("P-0.05-0", "P-0.05-25", "P-0.2-0", "CST-30", "ours-record", "ours-quantile")

Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="P-0.05-25, CST-30, Q-0.99, ours-record or ours-quantile; repeatable (default: some of each).",
        show_default=False,
    ),
]
Late = Annotated[
    str,
    typer.Option(
        "--late", metavar="deliver|drop", help="What to do with an event that arrives after a later one was delivered."
    ),
]


@app.command(epilog=EPILOG)
def replay(
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACES...", help="Directories of a trace; several are read as one.", show_default=False
        ),
    ],
    policy: Policies = None,
    late: Late = "deliver",
    out: Annotated[
        str | None,  # a Path would lose one of the slashes of an address
        typer.Option("--out", metavar="DIR", help="Write a row for each pair and policy to DIR/pairs."),
    ] = None,
    false_matches: Annotated[
        float,
        typer.Option(
            "--false-matches",
            metavar="SHARE",
            parser=share_option,
            help="The share of other events that a record's summary wrongly matches.",
        ),
    ] = 0.001,
    master: Master = None,
    remote: Remote = None,
    environment: Environment = None,
    conf: Conf = None,
    mapping: MappingFile = None,
    clock_tolerance: ClockTolerance = "0 s",
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Replay a trace under ordering policies: what each puts in order, and how long it holds events."""
    with reporting(json=json):
        policies = parse_policies(policy or DEFAULT_POLICIES, late)
        require_spark()
        from contextlib import ExitStack

        from tidings.model.units import parse_quantity
        from tidings.pipeline import open_session
        from tidings.pipeline.ordering import ReplayOptions, replay_orders

        options = ReplayOptions(
            mapping=mapping,
            clock_tolerance_ns=round(parse_quantity(clock_tolerance, "time") * 1e9),
            false_matches=false_matches,
        )
        with ExitStack() as stack:
            session = open_session(
                master=master,
                remote=remote,
                environment=environment,
                verbose=verbose,
                app_name="tidings order replay",
                extra=parse_conf(conf),
            )
            result = replay_orders(
                lambda: stack.enter_context(session),
                traces,
                policies,
                out,
                options,
                progress=lambda stage: typer.echo(stage, err=True),
            )
        if json:
            print_json(result)
        else:
            _print(result)


@app.command(epilog=WATCH_EPILOG)
def watch(
    trace: Annotated[str, typer.Argument(metavar="DIR", help="The directory of a growing trace.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The directory for the counts; a restart continues from it.")
    ],
    policy: Policies = None,
    late: Late = "deliver",
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How often to look for new files.")] = "5 s",
    once: Annotated[bool, typer.Option("--once", help="Exit when all existing files are counted.")] = False,
    buckets: Annotated[
        int, typer.Option("--buckets", help="Spread the subscriptions of a publisher over this many tasks.")
    ] = 1,
    master: Master = None,
    environment: Environment = None,
    verbose: Verbose = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line after each batch.")] = False,
) -> None:
    """Monitor the order of deliveries while a trace is written.

    After each batch it shows what each policy puts in order and how long it
    holds events. Ctrl-C stops it; a restart continues where it stopped.
    """
    with reporting(json=False), errors_as_lines(json=json):
        policies = parse_policies(policy or DEFAULT_POLICIES, late)
        require_spark()
        from tidings.model.units import parse_quantity
        from tidings.pipeline import local_path, open_session
        from tidings.pipeline.ingest import find_files
        from tidings.pipeline.ordering import WatchOrders, watch_orders

        options = WatchOrders(every_s=parse_quantity(every, "time"), is_once=once, buckets=buckets)
        find_files([trace])  # says what is missing before Spark is started
        out = local_path(out)
        with open_session(
            master=master, environment=environment, verbose=verbose, app_name="tidings order watch"
        ) as spark:
            watch_orders(spark, trace, out, policies, options, listener=_json_line if json else _text_lines)


def _json_line(totals: "OrderTotals") -> None:
    import msgspec

    document = msgspec.to_builtins(totals)
    for row, policy in zip(document["policies"], totals.policies, strict=True):
        row.update(repaired=policy.repaired, mean_hold_ms=policy.mean_hold_ms)
    typer.echo(msgspec.json.encode(document).decode())


def _text_lines(totals: "OrderTotals") -> None:
    unknown = f", {totals.unknown:,} of unknown events" if totals.unknown else ""
    typer.echo(f"batch {totals.batch}: {totals.touched_pairs:,} pairs{unknown}")
    for row in totals.policies:
        repaired = percent(row.repaired, 2)
        typer.echo(
            f"  {row.policy:14} {row.received:,} received, {row.out_of_order:,} out of order, {repaired} repaired, "
            f"held {row.mean_hold_ms:.3g} ms"
        )


def parse_policies(names: "Sequence[str]", late: str) -> "list[Policy]":
    """The policies that were asked for."""
    from tidings.ordering import Policy

    if late == "deliver":
        return [Policy.parse(name) for name in names]
    if late == "drop":
        return [Policy.parse(name, late="drop") for name in names]
    raise ConfigurationError(f"--late {late}: must be deliver or drop")


def _print(result: "OrderReplay") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    share = result.out_of_order / result.received
    console.print(
        f"{result.received:,} receptions in {result.pairs:,} pairs of publisher and subscription, "
        f"{result.out_of_order:,} of them out of order ({percent(share, 2)})"
    )
    if result.bad:
        console.print(f"left out: {', '.join(f'{reason} {count:,}' for reason, count in result.bad.items())}")
    table = Table(box=None, pad_edge=False)
    table.add_column("policy")
    for heading in ("repaired", "violations", "hold, ms", "p50, p90", "assessed, ms", "p50, p90", "as good as"):
        table.add_column(heading, justify="right")
    for row in result.policies:
        table.add_row(
            row.policy,
            percent(row.repaired, 2),
            f"{row.violations:,}",
            *_times(row.hold_ms),
            *_times(row.assessed_ms),
            "-" if row.static_latch_ms is None else f"CST-{row.static_latch_ms:g}",
        )
    print_table(console, table)
    if result.table is not None:
        typer.echo(f"wrote the pairs to {result.table}", err=True)


def _times(times: "PairQuantiles") -> tuple[str, str]:
    return f"{times.mean:.3g}", f"{times.p50:.3g}, {times.p90:.3g}"
