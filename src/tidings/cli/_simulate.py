"""`tidings simulate`: run a scenario in virtual time, and show who got what in time."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli._output import ROUGH, Json, print_json, print_table, progress_bar, reporting, shown_interval
from tidings.cli._scenario_options import ScenarioFile, Seed
from tidings.cli._shares import share_option
from tidings.model.policies import listed
from tidings.model.units import percent

if TYPE_CHECKING:
    from tidings.simulation import Result

__all__ = ["EPILOG", "simulate"]

EPILOG = (
    "Try:\n\ntidings simulate examples/quickstart.toml\n\n"
    "tidings simulate examples/quickstart.toml --seed 7 --out trace\n\n"
    "tidings simulate examples/paper-c.toml --json"
)
ROWS_MAX = 20
_HOMES_SHOWN = 5


def simulate(
    scenario: ScenarioFile,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write the trace to this directory.", show_default=False),
    ] = None,
    sample: Annotated[
        float,
        typer.Option(
            "--sample", metavar="SHARE", parser=share_option, help="The share of events to record in the trace."
        ),
    ] = 1.0,
    ordering: Annotated[
        str | None,
        typer.Option(
            "--ordering",
            metavar="POLICY",
            help=f"How receivers put events in order: {listed('ordering', 'simulator')}.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run a scenario in virtual time: what each subscriber gets on time, late or not at all."""
    with reporting(json=json):
        import msgspec

        from tidings.model.scenario import Scenario
        from tidings.simulation import Options
        from tidings.simulation import simulate as run

        network = Scenario.load(scenario).expand(seed)
        if ordering is not None:
            policies = msgspec.structs.replace(network.policies, ordering=ordering)
            network = msgspec.structs.replace(network, policies=policies)
        options = Options(sample=sample)
        with progress_bar("simulating") as progress:
            result = run(network, options, out=out, progress=progress)
        if json:
            trace = None if out is None else str(out)
            print_json({"scenario": str(scenario), "trace": trace, **msgspec.to_builtins(result)})
        else:
            _print(result, out)


def _print(result: "Result", out: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if result.title:
        console.print(Text(result.title, style="bold"))
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column()
    rate = percent(result.delivery_rate)
    lost = f"{result.lost:,} lost ({result.dropped:,} of them dropped)"
    missed = f"{result.late:,} late, {lost}, {result.in_flight:,} in flight"
    facts.add_row("published", f"{result.published:,} events for {result.matched:,} deliveries")
    facts.add_row("on time", f"{rate}: {result.on_time:,} deliveries, earning {result.earnings:,.10g}")
    facts.add_row("not on time", missed)
    if result.ordering is not None:
        order = result.ordering
        repaired = "" if order.repaired is None else f", {percent(order.repaired)} put right"
        held = f"held {order.hold_ms_mean:.3g} ms on average, 99 % at most {order.hold_ms_p99:.3g} ms"
        facts.add_row("order", f"{order.out_of_order:,} out of order{repaired} by {order.policy}; {held}")
    if result.relocation is not None:
        moved = result.relocation
        kept = Counter(moved.homes.values()).most_common(_HOMES_SHOWN)
        places = ", ".join(f"{count:,} at {broker}" for broker, count in kept)
        facts.add_row("publishers", f"moved {moved.moves:,} times by {moved.policy}; at the end {places}")
    facts.add_row("traffic", f"{result.traffic:,} events received by brokers")
    facts.add_row("busiest", f"link {_most(result.links)}, broker {_most(result.brokers)}")
    if result.faults is not None:
        sent = ", ".join(f"{count:,} {kind}" for kind, count in result.faults.messages.items() if count)
        stored = f"at most {result.faults.storage_peak:,} events stored, {result.faults.duplicates:,} duplicates"
        facts.add_row("failures", f"scheme {result.faults.scheme}: {stored}")
        facts.add_row("messages", sent or "none")
    speed = f"{result.steps:,} steps in {result.wall_s:.2f} s"
    facts.add_row("run", f"{result.duration_s:g} s after {result.warmup_s:g} s of warm-up, seed {result.seed}; {speed}")
    console.print(facts)
    table = Table(title="subscribers, the least reliable first", title_justify="left", box=None, pad_edge=False)
    table.add_column("subscriber")
    for heading in ("matched", "on time", "late", "lost", "reliability", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    ranked = sorted(result.subscribers.items(), key=lambda item: _reliability(item[1].on_time_reliability))
    for name, row in ranked[:ROWS_MAX]:
        share = percent(row.on_time_reliability)
        counts = (f"{count:,}" for count in (row.matched, row.on_time, row.late, row.lost))
        table.add_row(Text(name), *counts, share, shown_interval(row.interval))
    if ranked:
        print_table(console, table)
    if any(row.interval is not None and row.interval.is_rough for _, row in ranked[:ROWS_MAX]):
        console.print(ROUGH, style="dim")
    if len(ranked) > ROWS_MAX:
        console.print(f"and {len(ranked) - ROWS_MAX:,} more; --json shows all", style="dim")
    if out is not None:
        typer.echo(f"wrote the trace to {out}", err=True)


def _reliability(share: float | None) -> float:
    return 2.0 if share is None else share  # those without events last


def _most(shares: dict[str, float]) -> str:
    if not shares:
        return "none"
    name = max(shares, key=lambda each: shares[each])
    return f"{name} ({percent(shares[name])})"
