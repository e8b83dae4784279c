"""`tidings place --apply`: a plan, followed by the clients of a live network."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidings.cli._output import print_json, print_table, progress_bar

if TYPE_CHECKING:
    from tidings.live.operations import Outcome
    from tidings.placement import Move, PlacementPlan

__all__ = ["apply_plan"]

_FINE = ("moved", "there already")


def apply_plan(plan: "PlacementPlan", network: Path, *, json: bool) -> None:
    """Ask clients to move, and say what became of it; exit code 1 if one did not."""
    import asyncio

    from tidings.live import read_network
    from tidings.live.operations import client_moves, move_clients

    read = read_network(network)
    moves, left_out = client_moves(plan)
    with progress_bar("moving") as progress:
        outcomes = asyncio.run(move_clients(read, moves, progress=progress))
    if json:
        print_json({"plan": plan, "applied": outcomes, "left_out": left_out})
    else:
        _print(outcomes, left_out)
    if any(each.outcome not in _FINE for each in outcomes):
        raise typer.Exit(1)


def _print(outcomes: "list[Outcome]", left_out: "list[Move]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    if not outcomes:
        console.print("nobody has to move")
        return
    table = Table(title="applied", title_justify="left", box=None, pad_edge=False)
    for heading in ("client", "from", "to", "outcome"):
        table.add_column(heading)
    for each in outcomes:
        outcome = each.outcome + (f": {each.why}" if each.why else "")
        style = "green" if each.outcome in _FINE else "red"
        table.add_row(Text(each.client), Text(each.origin or "-"), Text(each.target), Text(outcome, style=style))
    print_table(console, table)
    for move in left_out:
        console.print(
            f"{move.client} {move.name!r} is not moved to {move.target!r}: its client moves elsewhere as a whole",
            style="dim",
        )
