"""`tidings rehearse` and `tidings compare`: a scenario on real broker processes, and the same scenario four ways."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli._output import Json, print_json, print_table, progress_bar, reporting
from tidings.cli._scenario_options import ScenarioFile, Seed
from tidings.cli._shares import share_option
from tidings.model.units import percent

if TYPE_CHECKING:
    from tidings.model.scenario import Network
    from tidings.rehearsal import Comparison, Estimate, RehearsalResult

__all__ = ["COMPARE_EPILOG", "REHEARSE_EPILOG", "compare", "rehearse"]

REHEARSE_EPILOG = (
    "Try:\n\ntidings rehearse examples/rehearsal.toml --scale 20\n\n"
    "tidings rehearse examples/rehearsal.toml --out rehearsal"
)
COMPARE_EPILOG = (
    "Try:\n\ntidings compare examples/rehearsal.toml --without rehearsal\n\n"
    "tidings compare examples/rehearsal.toml --scale 20 --page four-ways.html"
)
ROWS_MAX = 20
_WAY_NAMES = "protocol, rehearsal, predictor"

_Scale = Annotated[float, typer.Option("--scale", help="How many seconds of the scenario to run in one second.")]
_Duration = Annotated[
    str | None,
    typer.Option("--duration", metavar="TIME", help="Run only this much of the scenario.", show_default=False),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Keep the network file, the log and the traces here.", show_default=False
    ),
]


def rehearse(
    scenario: ScenarioFile,
    seed: Seed = None,
    scale: _Scale = 10.0,
    duration: _Duration = None,
    out: _Out = None,
    json: Json = False,
) -> None:
    """Run a scenario on real broker processes on this machine.

    Links are shaped, brokers and links fail as the scenario says, and
    clients are generated.
    """
    with reporting(json=json):
        from tidings.rehearsal import rehearse as run

        network = _network(scenario, seed, duration)
        with progress_bar("rehearsing") as progress:
            result = run(network, scale=scale, out=out, progress=progress)
        if json:
            print_json({"scenario": str(scenario), **_document(result)})
        else:
            _print_rehearsal(network.title or str(scenario), result, out)


def compare(
    scenario: ScenarioFile,
    seed: Seed = None,
    scale: _Scale = 10.0,
    duration: _Duration = None,
    seeds: Annotated[
        int, typer.Option("--seeds", help="The number of simulations that the prediction is compared with.")
    ] = 8,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            metavar="SHARE",
            parser=share_option,
            help="The difference of on-time shares that is allowed beyond noise.",
        ),
    ] = 0.01,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", metavar="WAY", help=f"Leave out one of {_WAY_NAMES}; repeatable.", show_default=False
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Write an HTML page.", show_default=False)
    ] = None,
    out: _Out = None,
    json: Json = False,
) -> None:
    """Run a scenario four ways and compare the on-time shares.

    The four are the simulator, the protocol in virtual time, real broker
    processes, and the predictor. The exit code is 1 if the on-time share of
    a subscriber differs between two of them by more than noise.
    """
    with reporting(json=json):
        import msgspec

        from tidings.errors import ConfigurationError
        from tidings.rehearsal import WAYS
        from tidings.rehearsal import compare as run

        left_out = without or []
        for way in left_out:
            if way not in WAYS or way == "simulator":
                raise ConfigurationError(f"--without {way}: must be one of {_WAY_NAMES}")
        network = _network(scenario, seed, duration)
        ways = [way for way in WAYS if way not in left_out]
        with progress_bar("comparing") as progress:
            found = run(
                network,
                ways=ways,
                scale=scale,
                seeds=seeds,
                tolerance=tolerance,
                out=out,
                progress=lambda way, share: progress((ways.index(way) + share) / len(ways)),
            )
        if page is not None:
            from tidings.report.page import write_comparison

            write_comparison(found, page)
        if json:
            print_json({"scenario": str(scenario), "agrees": found.agrees, **msgspec.to_builtins(found)})
        else:
            _print_comparison(network.title or str(scenario), found)
        if not found.agrees:
            raise typer.Exit(1)


def _network(scenario: Path, seed: int | None, duration: str | None) -> "Network":
    import msgspec

    from tidings.errors import ConfigurationError, InputError
    from tidings.model.scenario import Scenario
    from tidings.model.units import parse_quantity

    network = Scenario.load(scenario).expand(seed)
    if duration is None:
        return network
    try:
        duration_s = parse_quantity(duration, "time")
    except InputError as error:
        raise ConfigurationError(f"--duration: {error}") from None
    if not network.warmup_s < duration_s <= network.duration_s:
        raise ConfigurationError(
            f"--duration {duration}: must be longer than the warm-up ({network.warmup_s:g} s) and at most "
            f"{network.duration_s:g} s, the duration of the scenario"
        )
    return msgspec.structs.replace(network, duration_s=duration_s)


def _document(result: "RehearsalResult") -> dict[str, Any]:
    import msgspec

    fields = {name: getattr(result, name) for name in result.__struct_fields__ if not name.endswith("_pairs")}
    document: dict[str, Any] = msgspec.to_builtins(fields)
    return document


def _print_rehearsal(title: str, result: "RehearsalResult", out: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    machine = result.machine
    console.print(
        Text(f"{title}: {result.published:,} events, {result.refused:,} refused, {result.scale:g} times as fast")
    )
    console.print(f"on time {_share(result.on_time_reliability)} of {result.matched:,} deliveries")
    console.print(
        f"this machine adds {1e3 * machine.added_s_p50:.3g} ms to a delay (median), {1e3 * machine.share_s:.3g} ms "
        f"(99th percentile), which is {result.machine_share_s:.3g} s of the scenario's time"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("subscriber")
    for heading in ("matched", "on time", "late", "on-time share (95 %)", "without machine delay"):
        table.add_column(heading, justify="right")
    for name, row in list(result.subscriptions.items())[:ROWS_MAX]:
        forgiven = "-" if not row.matched else percent(row.on_time_forgiven / row.matched, 2)
        cells = (f"{row.matched:,}", f"{row.on_time:,}", f"{row.late:,}", _share(row.on_time_reliability), forgiven)
        table.add_row(Text(name), *cells)
    print_table(console, table)
    if len(result.subscriptions) > ROWS_MAX:
        console.print(f"and {len(result.subscriptions) - ROWS_MAX:,} more; --json shows all", style="dim")
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if out is not None:
        typer.echo(f"wrote the network file, the log and the trace to {out}", err=True)


def _print_comparison(title: str, found: "Comparison") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tidings.rehearsal import WAYS

    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(f"{title}: {found.published:,} events, {found.matched:,} deliveries"))
    ways = [way for way in WAYS if way not in found.skipped]
    table = Table(box=None, pad_edge=False)
    for heading in ("subscriber", *ways):
        table.add_column(heading, justify="left" if heading == "subscriber" else "right")
    table.add_row("all", *(_share(found.total[way]) for way in ways))
    for name, row in list(found.subscriptions.items())[:ROWS_MAX]:
        table.add_row(Text(f"  {name}"), *(_share(row.shares[way]) for way in ways))
    print_table(console, table)
    if len(found.subscriptions) > ROWS_MAX:
        console.print(f"and {len(found.subscriptions) - ROWS_MAX:,} more; --json shows all", style="dim")
    for way, reasons in found.unjudged.items():
        for reason in reasons:
            console.print(Text(f"{way} not judged: {reason}"))
    for each in found.disagreements:
        console.print(
            Text(
                f"{each.subscription}: {each.other} differs from {each.one} by {each.difference:+.4f}; tolerance and "
                f"noise allow {each.allowed:.4f}"
            )
        )
    if found.agrees:
        console.print(f"All agree within noise plus {found.tolerance:g}.")


def _share(found: "Estimate | None") -> str:
    if found is None:
        return "-"
    if found.low == found.high:
        return percent(found.share, 2)
    return f"{percent(found.share, 2)} ({100 * found.low:.1f} to {100 * found.high:.1f})"
