"""`tidings plan`: the cheapest changes with which every subscriber has its events on time, verified by simulation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli._output import Json, print_json, print_table, reporting
from tidings.cli._predict_tables import print_unmodelled
from tidings.cli._scenario_options import ProfileScheme, ProfileStrategy, ScenarioOrProfiles, Seed
from tidings.cli._shares import share_option
from tidings.model.policies import DEFAULT_SCHEME, DEFAULT_STRATEGY, Scheme, StrategyName, policy
from tidings.model.units import percent

if TYPE_CHECKING:
    from tidings.model.scenario import Network
    from tidings.planning import Costs, Kind, Objective, Plan

__all__ = ["EPILOG", "network_of_place", "plan"]

EPILOG = (
    "Try:\n\ntidings plan examples/plan/mixed.toml --slo 0.99\n\n"
    "tidings plan examples/plan/overload.toml --without move --apply better.toml\n\n"
    "tidings plan examples/quickstart.toml --slo 0.9 --share 0.8 --cost capacity=5 --json"
)
ROWS_MAX = 20
FORMAT = "tidings.slo-plan"


_Slo = Annotated[
    float,
    typer.Option(
        "--slo",
        metavar="SHARE",
        parser=share_option,
        help="The share of its events that a subscriber gets on time, as 99% or 0.99.",
    ),
]
_Share = Annotated[
    float,
    typer.Option("--share", metavar="SHARE", parser=share_option, help="The share of subscribers that must get it."),
]
_Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="KIND",
        help="Also allow this kind: lifetime asks users for longer deadlines.",
        show_default=False,
    ),
]
_Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without", metavar="KIND", help="Leave this out: scheduling, scheme, move, capacity.", show_default=False
    ),
]
_Cost = Annotated[
    list[str] | None,
    typer.Option("--cost", metavar="KIND=NUMBER", help="The cost of a kind of change.", show_default=False),
]
_Costs = Annotated[
    Path | None,
    typer.Option("--costs", metavar="FILE", help="A TOML file with a table `costs`.", show_default=False),
]
_Runs = Annotated[int, typer.Option("--runs", min=0, help="Simulations that verify a plan; 0 for a prediction alone.")]
_Apply = Annotated[
    Path | None,
    typer.Option("--apply", metavar="FILE", help="Write the changed scenario.", show_default=False),
]
_Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the plan as JSON.", show_default=False)]


def plan(
    scenario: ScenarioOrProfiles,
    slo: _Slo = 0.99,
    share: _Share = 1.0,
    allow: _Allow = None,
    without: _Without = None,
    cost: _Cost = None,
    costs: _Costs = None,
    runs: _Runs = 5,
    seed: Seed = None,
    strategy: ProfileStrategy = None,
    scheme: ProfileScheme = None,
    apply: _Apply = None,
    out: _Out = None,
    json: Json = False,
) -> None:
    """Find the cheapest changes that meet an on-time objective, and verify them by simulation.

    If no change meets it, this shows what prevents it and what would be
    needed, and the exit code is 1.
    """
    with reporting(json=json):
        from tidings import planning as room

        objective = room.Objective(reliability=slo, share=share)
        prices = _costs(costs, cost or [])
        network = network_of_place(scenario, seed, strategy, scheme)
        allowed = _kinds(allow or [], without or [])
        found = room.plan(
            network,
            objective,
            costs=prices,
            allowed=allowed,
            runs=runs,
            report=lambda text: typer.echo(text, err=True),
        )
        document = _document(str(scenario), found)
        if out is not None:
            _write(document, out)
        if apply is not None and found.is_possible:
            room.write_toml(found.network, apply, comments=_comments(scenario, found))
        if json:
            print_json(document)
        else:
            _print(network.title or str(scenario), found)
        for path in (out, apply if found.is_possible else None):
            if path is not None:
                typer.echo(f"wrote {path}", err=True)
        if not found.is_possible:
            raise typer.Exit(1)


def network_of_place(place: Path, seed: int | None, strategy: StrategyName | None, scheme: Scheme | None) -> "Network":
    """The network of a scenario, or of profiles with the policies that were in force."""
    from tidings.errors import InputError
    from tidings.model.scenario import Scenario
    from tidings.pipeline import local_path
    from tidings.prediction import network_of_profiles

    place = local_path(place, purpose="read")
    if place.is_dir():
        named = policy("strategy", strategy or DEFAULT_STRATEGY)
        if not named.has("planner"):
            raise InputError(f"--strategy {named.name} is not for plans: {named.missing['planner']}")
        return network_of_profiles(
            place,
            strategy=strategy or DEFAULT_STRATEGY,
            scheme=scheme or DEFAULT_SCHEME,
            seed=0 if seed is None else seed,
        )
    for name, value in (("strategy", strategy), ("scheme", scheme)):
        if value is not None:
            raise InputError(f"--{name} is for profiles, which do not contain it; a scenario has it under [policies]")
    return Scenario.load(place).expand(seed)


def _kinds(allow: list[str], without: list[str]) -> "list[Kind]":
    from tidings.errors import InputError
    from tidings.planning import KINDS, USUAL_KINDS

    for kind in (*allow, *without):
        if kind not in KINDS:
            raise InputError(f"unknown kind of change {kind!r}: must be one of {', '.join(KINDS)}")
    return [kind for kind in KINDS if (kind in USUAL_KINDS or kind in allow) and kind not in without]


def _costs(path: Path | None, written: list[str]) -> "Costs":
    from tidings.errors import InputError
    from tidings.planning import Costs

    prices: dict[str, float] = {}
    for each in written:
        name, equals, number = each.partition("=")
        try:
            prices[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"--cost {each!r}: write a kind and what it costs, such as --cost capacity=20")
    return (Costs() if path is None else Costs.load(path)).changed(prices, place="--cost")


def _document(source: str, found: "Plan") -> dict[str, Any]:
    import msgspec
    import numpy as np

    from tidings.planning import LEVEL

    def number(value: float) -> float | None:
        return None if np.isnan(value) else float(value)

    shown = found.verification
    verification = None
    if shown is not None:
        verification = {
            "seeds": list(shown.seeds),
            "duration_s": shown.duration_s,
            "met": list(shown.met),
            "low_ends_met": shown.is_met_at_low_ends,
            "level": LEVEL,
        }
    rows = {}
    for place, name in enumerate(found.subscribers):
        row: dict[str, Any] = {"now": number(found.now[place]), "then": number(found.then[place])}
        if shown is not None:
            row["simulated"] = number(shown.reliability[place])
            row["interval"] = [number(shown.low[place]), number(shown.high[place])]
        rows[name] = row
    return {
        "format": FORMAT,
        "version": 1,
        "scenario": source,
        "objective": {"reliability": found.objective.reliability, "share": found.objective.share},
        "possible": found.is_possible,
        "cost": found.cost if found.is_possible else None,
        "changes": [
            msgspec.to_builtins(planned.change) | {"cost": planned.cost, "words": planned.words}
            for planned in found.changes
        ],
        "now_means": found.now_means,
        "means": found.means,
        "unpredicted": found.unpredicted,
        "unmodelled": found.unmodelled,
        "margin": found.has_margin,
        "at_least": found.at_least if found.is_possible else None,
        "cheapest": found.is_cheapest,
        "verification": verification,
        "rejected": [[change.words for change in changes] for changes in found.rejected],
        "obstacles": [
            {
                "kind": obstacle.kind,
                "place": obstacle.place,
                "subscribers": list(obstacle.subscribers),
                "needed_s": obstacle.needed_s,
                "words": obstacle.words,
            }
            for obstacle in found.obstacles
        ],
        "subscribers": rows,
    }


def _write(document: dict[str, Any], path: Path) -> None:
    import msgspec

    from tidings.errors import InputError

    temporary = path.with_name(f"_{path.name}")
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _comments(source: Path, found: "Plan") -> tuple[str, ...]:
    wanted = f"{found.objective.reliability:.4g} on time for {_who(found.objective)}"
    return (f"{source.name} with a plan for {wanted}:", *(f"- {planned.words}" for planned in found.changes), "")


def _print(title: str, found: "Plan") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(title, style="bold"))
    for name, words in _facts(found):
        console.print(Text(f"{name:<10}{words}"))
    for planned in found.changes:
        console.print(Text(f"  {planned.words} ({planned.cost:g})"))
    for obstacle in found.obstacles[:ROWS_MAX]:
        console.print(Text(f"  {obstacle.words}"))
    if len(found.obstacles) > ROWS_MAX:
        console.print(f"  and {len(found.obstacles) - ROWS_MAX:,} more; --json shows all", style="dim")
    print_table(console, _table(found))
    if len(found.subscribers) > ROWS_MAX:
        console.print(f"and {len(found.subscribers) - ROWS_MAX:,} more; --json shows all", style="dim")
    print_unmodelled(found.unmodelled)


def _who(objective: "Objective") -> str:
    return "every subscriber" if objective.share == 1.0 else f"{objective.share:.4g} of the subscribers"


def _facts(found: "Plan") -> list[tuple[str, str]]:
    import numpy as np

    objective = found.objective
    facts = [("objective", f"{percent(objective.reliability, 2)} of the events on time for {_who(objective)}")]
    known = found.now[~np.isnan(found.now)]
    having = int((known >= objective.reliability).sum())
    facts.append(("now", f"{having:,} of {len(known):,} have that, as {found.now_means}"))
    if not found.is_possible and found.obstacles:
        return [
            *facts,
            ("plan", "impossible with the allowed changes; what remains after all helpful changes:"),
        ]
    if not found.is_possible:
        why = f"none: simulations contradicted all {len(found.rejected)} sets that looked good"
        return [*facts, ("plan", f"{why}; try --runs 0 for the prediction alone, or a lower --slo")]
    by = "predicted" if found.unpredicted is None else f"simulated, since no formula knows {found.unpredicted}"
    cheapest = "the cheapest" if found.is_cheapest else f"at least {found.at_least:g}"
    cost = "nothing has to change" if not found.changes else f"cost {found.cost:g}, {cheapest}; {by}"
    return [*facts, ("verified", _verified(found)), ("plan", cost)]


def _verified(found: "Plan") -> str:
    shown = found.verification
    if shown is None:
        return (
            "predicted, not simulated" if found.means == "predicted" else "not verified: estimated by a simulation only"
        )
    from tidings.planning import LEVEL

    runs = f"{sum(shown.met)} of {len(shown.met)} simulations with fresh seeds meet it"
    ends = f"the lower ends of their {percent(LEVEL, 0)} intervals"
    if shown.is_met_at_low_ends:
        return f"{runs}; so do {ends}"
    if not found.has_margin:
        return f"{runs}, but it is too close to the objective for a run of this length"
    return f"{runs}, but not {ends}: the runs are too short"


def _table(found: "Plan") -> Any:
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    after = found.then if found.verification is None else found.verification.reliability
    heading = "then" if found.verification is None else "then (simulated)"
    if not found.is_possible:
        heading = "with all that helps"
    table = Table(title="subscribers, the least reliable now first", title_justify="left", box=None, pad_edge=False)
    table.add_column("subscriber")
    table.add_column(f"now ({found.now_means})", justify="right")
    table.add_column(heading, justify="right")
    for place in np.argsort(np.where(np.isnan(found.now), 2.0, found.now), kind="stable")[:ROWS_MAX].tolist():
        figures = ("-" if np.isnan(value) else percent(value) for value in (found.now[place], after[place]))
        table.add_row(Text(found.subscribers[place]), *figures)
    return table
