"""`tidings what-if`: what one change does for every subscriber, before and after."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli._output import Json, print_json, print_table, reporting
from tidings.cli._plan import network_of_place
from tidings.cli._predict_tables import print_unmodelled
from tidings.cli._scenario_options import ProfileScheme, ProfileStrategy, ScenarioOrProfiles, Seed
from tidings.model.units import percent

if TYPE_CHECKING:
    from tidings.planning import WhatIf

__all__ = ["EPILOG", "what_if"]

EPILOG = (
    "A change is written as\n\n"
    "strategy=NAME, scheme=NAME, ordering=POLICY: the policy of all links, brokers or receivers\n\n"
    "move:PUBLISHER=BROKER: the publisher becomes a client of this broker\n\n"
    "broker:NAME=2, link:ONE,OTHER=1.5: so many times as fast; a line in both directions\n\n"
    "deadline:SUBSCRIBER=2, lifetime:PUBLISHER=2: so many times as long\n\n"
    "Try:\n\ntidings what-if examples/plan/mixed.toml --change strategy=lookahead\n\n"
    "tidings what-if examples/plan/overload.toml --change link:middle,south=1.5 --change link:middle,south=2 --json"
)
ROWS_MAX = 20
FORMAT = "tidings.what-if"


def what_if(
    scenario: ScenarioOrProfiles,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            metavar="CHANGE",
            help="A change, such as link:a,b=1.5; repeatable (default: the changes that usually help).",
            show_default=False,
        ),
    ] = None,
    seed: Seed = None,
    strategy: ProfileStrategy = None,
    scheme: ProfileScheme = None,
    json: Json = False,
) -> None:
    """Show what a change would do for the on-time share of every subscriber.

    Each change is applied alone; with several, the last column shows all of
    them together. Shares before and after are both predicted, or both
    simulated if the network has effects that no prediction models.
    """
    with reporting(json=json):
        from tidings import planning as room

        network = network_of_place(scenario, seed, strategy, scheme)
        wanted = [room.parse_change(text) for text in change] if change else None
        found = room.what_if(network, wanted, report=lambda text: typer.echo(text, err=True))
        if json:
            print_json(_document(str(scenario), found))
        else:
            _print(network.title or str(scenario), found)


def _document(source: str, found: "WhatIf") -> dict[str, Any]:
    import msgspec

    def shares(values: Any) -> dict[str, float | None]:
        pairs = zip(found.subscribers, values.tolist(), strict=True)
        return {name: None if share != share else share for name, share in pairs}

    return {
        "format": FORMAT,
        "version": 1,
        "scenario": source,
        "means": found.means,
        "unpredicted": found.unpredicted,
        "unmodelled": found.unmodelled,
        "now": shares(found.now),
        "changes": [
            {
                "name": outcome.name,
                "words": outcome.description,
                "changes": [msgspec.to_builtins(each) for each in outcome.changes],
                "means": outcome.means,
                "mean": outcome.mean_reliability,
                "subscribers": shares(outcome.reliability),
            }
            for outcome in found.changes
        ],
        "all": shares(found.all),
    }


def _print(title: str, found: "WhatIf") -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(title, style="bold"))
    columns = [("now", found.now), *((f"({n})", each.reliability) for n, each in enumerate(found.changes, 1))]
    if len(found.changes) > 1 and not np.isnan(found.all).all():
        columns.append(("all", found.all))
    for number, outcome in enumerate(found.changes, 1):
        console.print(Text(f"({number}) {outcome.description}, {outcome.means}"))
    if not found.changes:
        console.print("none of the changes that usually help applies here; name one with --change")
    table = Table(title="on time, the least reliable now first", title_justify="left", box=None, pad_edge=False)
    table.add_column("subscriber")
    for heading, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("mean of all", *(_share(float(np.nanmean(values))) for _, values in columns), style="bold")
    order = np.argsort(np.where(np.isnan(found.now), 2.0, found.now), kind="stable")
    for place in order[:ROWS_MAX].tolist():
        table.add_row(Text(found.subscribers[place]), *(_share(float(values[place])) for _, values in columns))
    print_table(console, table)
    if len(order) > ROWS_MAX:
        console.print(f"and {len(order) - ROWS_MAX:,} more; --json shows all", style="dim")
    if found.unpredicted is not None:
        console.print(f'"now" is simulated, since no prediction models {found.unpredicted}', style="dim")
    print_unmodelled(found.unmodelled)


def _share(value: float) -> str:
    return "-" if value != value else percent(value)
