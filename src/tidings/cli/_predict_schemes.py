"""`tidings predict --scheme` and `--compare-schemes`: on-time shares under failures, by scheme."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli._output import print_json, print_table
from tidings.cli._predict_tables import print_unmodelled
from tidings.model.units import percent

if TYPE_CHECKING:
    from tidings.faults import Scheme
    from tidings.prediction import Failing, Knowledge, SchemePrediction

__all__ = ["ENOUGH", "run"]

ENOUGH = 0.005
"""A scheme suffices for a subscriber if none is better by more than this."""

SAME = 1e-4  # schemes nearer to each other than this are ranked by what they cost
ROWS_MAX = 20


def run(
    place: Path,
    scheme: "Scheme | None",
    *,
    model: str,
    alpha: float,
    seed: int | None,
    checked_every: str | None,
    json: bool,
    others: Mapping[str, object],
) -> None:
    """Predict for one scheme, or for all of them, and print it."""
    from tidings.errors import InputError
    from tidings.faults import SCHEMES
    from tidings.prediction import predict, predict_schemes

    for name, value in others.items():
        if value is not None:
            raise InputError(f"--{name} cannot be combined with schemes: run it without --scheme and --compare-schemes")
    if model not in ("ours", "paper"):
        raise InputError(f"--model {model} does not model failures: with schemes, choose ours or paper")
    title, knowledge, failing = _known(place, alpha, seed, checked_every)
    answer = predict(knowledge, model="ours" if model == "ours" else "gg1")
    chosen = SCHEMES if scheme is None else (scheme,)
    found = predict_schemes(answer, failing, schemes=chosen, model="ours" if model == "ours" else "paper")
    rows = _rows(knowledge, answer.matched_per_s.tolist(), found)
    if json:
        print_json(_document(str(place), model, rows, found))
    elif scheme is None:
        _print_comparison(title, model, rows, found)
    else:
        _print_scheme(title, model, scheme, rows, found)


def _known(place: Path, alpha: float, seed: int | None, checked_every: str | None) -> "tuple[str, Knowledge, Failing]":
    from tidings import prediction as room
    from tidings.errors import InputError
    from tidings.model.scenario import Scenario
    from tidings.model.units import parse_quantity

    if not place.is_dir():
        if checked_every is not None:
            raise InputError("--checked-every is for measured outages: give the directory of a pipeline run")
        network = Scenario.load(place).expand(seed)
        failing = room.failing_network(network)
        return network.title or str(place), room.from_network(network, alpha=alpha), failing
    if seed is not None:
        raise InputError("--seed needs a scenario: nothing is drawn from profiles")
    check_s = 0.0 if checked_every is None else parse_quantity(checked_every, "time")
    tables = room.read_profiles(place) | room.read_components(place)
    return str(place), room.imprecise(room.from_profiles(tables), alpha), room.failing_profiles(tables, check_s=check_s)


def _rows(
    knowledge: "Knowledge", matched_per_s: list[float], found: "dict[Scheme, SchemePrediction]"
) -> dict[str, dict[str, Any]]:
    """By subscription: R' of every scheme, the schemes in the order of merit, and the cheapest that suffices."""
    costs = {scheme: each.overhead.messages for scheme, each in found.items()}
    shares = {scheme: each.reliability.tolist() for scheme, each in found.items()}
    made = {}
    for number, name in enumerate(knowledge.subscriptions):
        own = {scheme: shares[scheme][number] for scheme in found}
        row: dict[str, Any] = {
            "matched_per_s": matched_per_s[number],
            "schemes": {
                scheme: {"on_time_reliability": share if share == share else None} for scheme, share in own.items()
            },
        }
        if len(found) > 1 and matched_per_s[number] > 0.0:
            best = max(own.values())
            row["ranking"] = sorted(own, key=lambda scheme: (-round(own[scheme] / SAME), costs[scheme]))
            enough = [scheme for scheme in own if own[scheme] >= best - ENOUGH]
            row["suffices"] = min(enough, key=lambda scheme: costs[scheme])
            row["buffer_suffices"] = "buffer" in enough
        made[name] = row
    return made


def _mean(rows: dict[str, dict[str, Any]], scheme: str) -> float | None:
    """On-time share of all deliveries under a scheme."""
    known = [row for row in rows.values() if row["schemes"][scheme]["on_time_reliability"] is not None]
    rate = sum(row["matched_per_s"] for row in known)
    total = sum(row["matched_per_s"] * row["schemes"][scheme]["on_time_reliability"] for row in known)
    return total / rate if rate > 0.0 else None


def _document(
    source: str, model: str, rows: dict[str, dict[str, Any]], found: "dict[Scheme, SchemePrediction]"
) -> dict[str, Any]:
    import msgspec

    return {
        "scenario": source,
        "model": model,
        "schemes": {
            scheme: {
                "on_time_reliability": _mean(rows, scheme),
                "overhead": msgspec.structs.asdict(each.overhead) | {"messages": each.overhead.messages},
                "unmodelled": each.unmodelled,
            }
            for scheme, each in found.items()
        },
        "subscribers": rows,
    }


def _print_comparison(
    title: str, model: str, rows: dict[str, dict[str, Any]], found: "dict[Scheme, SchemePrediction]"
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(title, style="bold"))
    table = Table(title=f"schemes, model {model}", title_justify="left", box=None, pad_edge=False)
    table.add_column("scheme")
    for heading in ("on time", "messages/event", "of them data", "stored", "stored at most"):
        table.add_column(heading, justify="right")
    for scheme, each in found.items():
        cost = each.overhead
        figures = (
            f"{cost.messages:.4g}",
            f"{cost.data:.4g}",
            *map(_events, (cost.stored_mean_events, cost.stored_peak_events)),
        )
        table.add_row(scheme, _share(_mean(rows, scheme)), *figures)
    print_table(console, table)
    print_unmodelled(dict.fromkeys(left_out for each in found.values() for left_out in each.unmodelled))
    known = {name: row for name, row in rows.items() if "suffices" in row}
    if not known:
        console.print("no publisher matches any subscription", style="dim")
        return
    count = sum(row["buffer_suffices"] for row in known.values())
    console.print(
        f"buffering alone suffices (within {ENOUGH:g} of the best) for {count:,} of {len(known):,} subscribers"
    )
    ranked = sorted(known.items(), key=lambda item: item[1]["schemes"][item[1]["ranking"][0]]["on_time_reliability"])
    listing = Table(title="subscribers, the least reliable first", title_justify="left", box=None, pad_edge=False)
    listing.add_column("subscriber")
    for scheme in found:
        listing.add_column(scheme, justify="right")
    listing.add_column("suffices")
    for name, row in ranked[:ROWS_MAX]:
        shares = [_share(row["schemes"][scheme]["on_time_reliability"]) for scheme in found]
        listing.add_row(Text(name), *shares, row["suffices"])
    print_table(console, listing)
    if len(ranked) > ROWS_MAX:
        console.print(f"and {len(ranked) - ROWS_MAX:,} more; --json shows all", style="dim")


def _print_scheme(
    title: str, model: str, scheme: "Scheme", rows: dict[str, dict[str, Any]], found: "dict[Scheme, SchemePrediction]"
) -> None:
    cost = found[scheme].overhead
    typer.echo(title)
    typer.echo(f"scheme   {scheme} (model {model})")
    typer.echo(f"on time  {_share(_mean(rows, scheme))} of all deliveries")
    typer.echo(
        f"costs    {cost.messages:.4g} messages for each event, {_events(cost.stored_mean_events)} events stored"
    )
    print_unmodelled(found[scheme].unmodelled)
    shares = {name: row["schemes"][scheme]["on_time_reliability"] for name, row in rows.items()}
    ranked = sorted(shares.items(), key=lambda item: 2.0 if item[1] is None else item[1])
    for name, share in ranked[:ROWS_MAX]:
        typer.echo(f"  {name}: {_share(share)}")
    if len(ranked) > ROWS_MAX:
        typer.echo(f"  and {len(ranked) - ROWS_MAX:,} more; --json shows all")


def _share(value: float | None) -> str:
    return percent(value)


def _events(value: float | None) -> str:
    return "without end" if value is None else f"{value:.4g}"
