"""`tidings place`: where publishers (and subscribers) should be, from the traces of a network, with Spark."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tidings.cli._output import Json, print_json, print_table, reporting
from tidings.cli._shares import parse_share
from tidings.cli._spark_options import (
    ClockTolerance,
    Conf,
    Environment,
    MappingFile,
    Master,
    Remote,
    Verbose,
    Warmup,
    parse_conf,
    require_spark,
)
from tidings.errors import ConfigurationError
from tidings.model.units import percent

if TYPE_CHECKING:
    from tidings.pipeline.placement import Placement
    from tidings.placement import Change, Move, Objective, PlacementPlan

__all__ = ["EPILOG", "place", "print_plan"]

EPILOG = (
    "Try:\n\ntidings simulate examples/quickstart.toml --out trace\n\n"
    "tidings place trace --objective load\n\n"
    "tidings place trace --objective delay --weight 75 --out plan.json --picture plan.svg\n\n"
    "tidings place trace --objective on-time --subscribers --json\n\n"
    "tidings place plan.json --apply network.toml"
)
ROWS_MAX = 20
_BENEFIT = {"load": "messages/s less", "delay": "delay saved, s/s", "on-time": "more on time, /s"}


_Traces = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACES...",
        help="Directories of a trace, read as one; or the file of a plan, to show and apply.",
        show_default=False,
    ),
]
_Objective = Annotated[
    str,
    typer.Option(
        "--objective",
        metavar="load|delay|on-time",
        help="What to minimise: messages that brokers handle, the mean delay, or late deliveries.",
    ),
]
_Weight = Annotated[
    float,
    typer.Option(
        "--weight",
        metavar="0..100",
        help="How much the objective counts: at 100 it decides alone; below, another figure decides among brokers "
        "that are nearly as good (delay for load, load for delay and on-time).",
    ),
]
_Hysteresis = Annotated[
    str,
    typer.Option("--hysteresis", metavar="SHARE", help="The least gain that justifies a move, as 1% or 0.01."),
]
_Joint = Annotated[
    bool,
    typer.Option(
        "--joint", help="Place all publishers together, so that they do not overload one broker; for delay only."
    ),
]
_Subscribers = Annotated[
    bool, typer.Option("--subscribers", help="Move subscribers too, if none of them gets its events later.")
]
_Traced = Annotated[
    int, typer.Option("--traced", metavar="EVENTS", help="The most events of each publisher to examine.")
]
_Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write the plan as JSON, for a live network to apply.")
]
_Picture = Annotated[
    Path | None,
    typer.Option("--picture", metavar="FILE", help="Draw the overlay before and after (.svg or .png)."),
]
_Apply = Annotated[
    Path | None,
    typer.Option("--apply", metavar="NETWORK", help="Ask the clients of this live network to move."),
]


def place(
    traces: _Traces,
    objective: _Objective = "load",
    weight: _Weight = 100.0,
    hysteresis: _Hysteresis = "1%",
    joint: _Joint = False,
    subscribers: _Subscribers = False,
    traced: _Traced = 1024,
    out: _Out = None,
    picture: _Picture = None,
    apply: _Apply = None,
    master: Master = None,
    remote: Remote = None,
    environment: Environment = None,
    conf: Conf = None,
    mapping: MappingFile = None,
    warmup: Warmup = None,
    clock_tolerance: ClockTolerance = "0 s",
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Find out from traces which publishers should move to another broker.

    A publisher far from its subscribers loads every broker in between. The
    trace shows who received its events and how long they took on links and
    at brokers. From that this finds the best broker for each publisher, and
    what a move changes: the messages that brokers handle, the mean delay, the
    utilisation of the busiest broker and the on-time share. Moves are ranked
    by their gain. Nothing is moved unless --apply names a live network; then
    its clients are asked to move, and the exit code is 1 if one does not.
    """
    with reporting(json=json):
        from tidings.model.units import parse_quantity
        from tidings.placement import Aim, read_plan
        from tidings.report import check_format

        if len(traces) == 1 and Path(traces[0]).is_file():
            _finish(read_plan(traces[0]), apply, json=json)
            return
        aim = Aim(objective=cast("Objective", objective), weight=weight, hysteresis=parse_share(hysteresis))
        out, picture = _checked("--out", out), _checked("--picture", picture)
        if picture is not None:
            check_format(picture)
        require_spark()
        from tidings.pipeline import open_session
        from tidings.pipeline.placement import PlaceOptions, place_on_spark

        options = PlaceOptions(
            aim=aim,
            is_joint=joint,
            moves_subscribers=subscribers,
            traced=traced,
            warmup_ns=None if warmup is None else round(parse_quantity(warmup, "time") * 1e9),
            clock_tolerance_ns=round(parse_quantity(clock_tolerance, "time") * 1e9),
            mapping=mapping,
        )
        traces = [_rows_of(each) for each in traces]
        with ExitStack() as stack:
            session = open_session(
                master=master,
                remote=remote,
                environment=environment,
                verbose=verbose,
                app_name="tidings place",
                extra=parse_conf(conf),
            )
            placement = place_on_spark(
                lambda: stack.enter_context(session),
                traces,
                options,
                progress=lambda stage: typer.echo(stage, err=True),
            )
        _write(placement, out, picture)
        _finish(placement.plan, apply, json=json)


def _rows_of(trace: str) -> str:
    """A directory of `tidings profile` has its trace in a folder."""
    window = Path(trace) / "window"
    return str(window) if (Path(trace) / "commits").is_dir() and window.is_dir() else trace


def _write(placement: "Placement", out: Path | None, picture: Path | None) -> None:
    """The files that were asked for."""
    if out is not None:
        from tidings.placement import write_plan

        write_plan(placement.plan, out)
        typer.echo(f"wrote the plan to {out}", err=True)
    if picture is not None:
        from tidings.report import draw_placement

        draw_placement(placement, picture)
        typer.echo(f"wrote the picture to {picture}", err=True)


def _finish(plan: "PlacementPlan", network: Path | None, *, json: bool) -> None:
    """Show a plan, and have a live network follow it if one is given."""
    if not json:
        print_plan(plan)
    if network is None:
        if json:
            print_json(plan)
        return
    from tidings.cli._apply import apply_plan

    apply_plan(plan, network, json=json)


def _checked(option: str, place: Path | None) -> Path | None:
    """Where a file goes; what could not be written is refused before Spark is started."""
    from tidings.pipeline import local_path

    if place is None:
        return None
    local = local_path(place)
    if local.is_dir() or not local.absolute().parent.is_dir():
        raise ConfigurationError(f"{option} {place}: must be a file in an existing directory")
    return local


def print_plan(plan: "PlacementPlan") -> None:
    """The plan as a table: what all moves come to, and the first ROWS_MAX of them."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column()
    seen = plan.made_from
    lasted_s = (seen.until_ns - seen.from_ns) / 1e9
    facts.add_row("looked at", f"{seen.events:,} events, {seen.deliveries:,} deliveries, over {lasted_s:,.6g} s")
    facts.add_row("for", f"{plan.aim.objective}{', together' if plan.aim.joint else ''}, weight {plan.aim.weight:g}")
    for client, count in plan.stay.items():
        moving = sum(move.client == client for move in plan.moves)
        facts.add_row(f"{client}s", f"{moving:,} should move, {count:,} stay")
    total = plan.expected
    facts.add_row("messages", f"{_rates(total.messages_per_s)} a second by all brokers")
    facts.add_row("delay", f"{_rates(total.delay_ms)} ms, mean of all deliveries")
    facts.add_row("busiest", f"broker {_shares(total.busiest)}")
    if total.on_time is not None:
        facts.add_row("on time", _shares(total.on_time))
    console.print(facts)
    if not plan.moves:
        return
    table = Table(title="moves, the best first; each alone", title_justify="left", box=None, pad_edge=False)
    for heading in ("client", "from", "to"):
        table.add_column(heading)
    for heading in (_BENEFIT[plan.aim.objective], "messages/s", "delay, ms", "busiest", "on time"):
        table.add_column(heading, justify="right")
    for move in plan.moves[:ROWS_MAX]:
        table.add_row(Text(move.name), Text(move.origin), Text(move.target), *_figures(move))
    print_table(console, table)
    if len(plan.moves) > ROWS_MAX:
        console.print(f"and {len(plan.moves) - ROWS_MAX:,} more; --json shows all", style="dim")


def _figures(move: "Move") -> tuple[str, ...]:
    expected = move.expected
    on_time = "-" if expected.on_time is None else _shares(expected.on_time)
    rates = (_rates(expected.messages_per_s), _rates(expected.delay_ms))
    return (f"{_round(move.benefit):.3g}", *rates, _shares(expected.busiest), on_time)


def _rates(change: "Change") -> str:
    return f"{change.now:,.4g} -> {change.then:,.4g} ({change.share:+.0%})"


def _shares(change: "Change") -> str:
    return f"{percent(change.now)} -> {percent(change.then)}"


def _round(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 else value  # what rounding leaves of nothing
