"""`tidings reproduce`: the papers' evaluations, run again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidings.cli._output import Json, print_json, print_table, progress_bar, reporting

if TYPE_CHECKING:
    from tidings.experiments import Claim, Evaluation

__all__ = ["app"]

Figures = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Draw the paper's figures into this directory.", show_default=False),
]

app = typer.Typer(
    help="Repeat the evaluations of the papers and report which results hold.",
    epilog="Try:\n\ntidings reproduce all --out papers.html\n\ntidings reproduce bounded-delay --json",
    no_args_is_help=True,
)


@app.callback()
def _reproduce() -> None:
    pass


@app.command(
    name="all",
    epilog=(
        "Try:\n\ntidings reproduce all --out papers.html\n\n"
        "tidings reproduce all --scale full --out papers.md --json > papers.json"
    ),
)
def every(
    scale: Annotated[
        Literal["quick", "full"], typer.Option("--scale", help="Takes minutes (quick) or hours (full) on two cores.")
    ] = "quick",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write one page: .html (with figures) or .md.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Repeat all five papers: what each claims, what was measured here, and whether it holds.

    An experiment that fails is reported and does not stop the others; the
    exit code is then 1.
    """
    with reporting(json=json):
        from tempfile import TemporaryDirectory

        from tidings import experiments

        if out is not None:
            experiments.check_page(out)
        with TemporaryDirectory() as folder, _steps() as progress:
            drawn = Path(folder) if out is not None and out.suffix.lower() == ".html" else None
            evaluations = experiments.reproduce_all(scale, figures=drawn, progress=progress)
            if out is not None:
                experiments.write_page(evaluations, out, scale=scale)
        if json:
            page = None if out is None else str(out)
            print_json({"scale": scale, "page": page, "papers": evaluations})
        else:
            _print_all(evaluations)
            if out is not None:
                typer.echo(f"wrote {out}", err=True)
        if any(each.error is not None for each in evaluations):
            raise typer.Exit(1)


@app.command(
    name="bounded-delay",
    epilog=(
        "Try:\n\ntidings reproduce bounded-delay\n\n"
        "tidings reproduce bounded-delay --scale full --out figures --json > claims.json"
    ),
)
def bounded_delay(
    scale: Annotated[
        Literal["quick", "full"],
        typer.Option("--scale", help="Forty minutes on 10 meshes (quick) or two hours on 24 (full)."),
    ] = "quick",
    out: Figures = None,
    json: Json = False,
) -> None:
    """Repeat paper C: the on-time share under FIFO, RL, EB, PC, EBPC and ours, on layered meshes."""
    with reporting(json=json):
        from tidings import experiments

        chosen = experiments.Scale.full() if scale == "full" else experiments.Scale.quick()
        with progress_bar("simulating") as progress:
            claims, outcomes = experiments.bounded_delay(chosen, progress=progress)
        figures = [] if out is None else experiments.draw_figures(outcomes, chosen, out)
        _show("bounded-delay", scale, claims, figures, json=json)


@app.command(
    epilog="Try:\n\ntidings reproduce timeliness\n\ntidings reproduce timeliness --scale full --out figures --json"
)
def timeliness(
    scale: Annotated[
        Literal["quick", "full"],
        typer.Option("--scale", help="About an hour of virtual time on 5 trees (quick) or 14 hours (full)."),
    ] = "quick",
    out: Figures = None,
    json: Json = False,
) -> None:
    """Repeat paper B: predicted and simulated on-time shares by M/M/1, G/G/1 and ours, on the trees of Table 3."""
    with reporting(json=json):
        from tidings import experiments

        chosen = experiments.TimelinessScale.full() if scale == "full" else experiments.TimelinessScale.quick()
        with progress_bar("simulating") as progress:
            claims, actual, predicted = experiments.timeliness(chosen, progress=progress)
        figures = [] if out is None else experiments.draw_timeliness(actual, predicted, out)
        _show("timeliness", scale, claims, figures, json=json)


@app.command(
    name="fifo-ordering",
    epilog="Try:\n\ntidings reproduce fifo-ordering\n\ntidings reproduce fifo-ordering --scale full --out figures",
)
def fifo_ordering(
    scale: Annotated[
        Literal["quick", "full"],
        typer.Option("--scale", help="One run of 45 and 36 s (quick) or three of 300 and 240 s (full)."),
    ] = "quick",
    out: Figures = None,
    json: Json = False,
) -> None:
    """Repeat paper A: the share of out-of-order receptions that its policies and ours repair, and the hold time."""
    with reporting(json=json):
        from tidings import experiments

        chosen = experiments.OrderingScale.full() if scale == "full" else experiments.OrderingScale.quick()
        with progress_bar("replaying") as progress:
            claims, series = experiments.fifo_ordering(chosen, progress=progress)
        figures = [] if out is None else [experiments.draw_adaptivity(series, out)]
        _show("fifo-ordering", scale, claims, figures, json=json)


@app.command(
    epilog="Try:\n\ntidings reproduce relocation\n\ntidings reproduce relocation --scale full --out figures --json"
)
def relocation(
    scale: Annotated[
        Literal["quick", "full"],
        typer.Option("--scale", help="Ten minutes on 2 networks (quick) or eighteen on 10 (full)."),
    ] = "quick",
    out: Figures = None,
    json: Json = False,
) -> None:
    """Repeat paper E: what moving publishers saves under POP, GRAPE and ours, on trees of 63 brokers."""
    with reporting(json=json):
        from tidings import experiments

        chosen = experiments.RelocationScale.full() if scale == "full" else experiments.RelocationScale.quick()
        with progress_bar("relocating") as progress:
            claims, found = experiments.relocation(chosen, progress=progress)
        figures = [] if out is None else experiments.draw_relocation(found, out)
        _show("relocation", scale, claims, figures, json=json)


@app.command(
    name="fault-tolerance",
    epilog="Try:\n\ntidings reproduce fault-tolerance\n\ntidings reproduce fault-tolerance --scale full --out figures",
)
def fault_tolerance(
    scale: Annotated[
        Literal["quick", "full"],
        typer.Option("--scale", help="Three runs of 14 days (quick) or ten on ten networks (full)."),
    ] = "quick",
    out: Figures = None,
    json: Json = False,
) -> None:
    """Repeat paper D: predicted and simulated on-time shares while brokers and links fail, by scheme."""
    with reporting(json=json):
        from tidings import experiments

        chosen = experiments.FaultScale.full() if scale == "full" else experiments.FaultScale.quick()
        with progress_bar("simulating") as progress:
            claims, outcomes = experiments.fault_tolerance(chosen, progress=progress)
        figures = [] if out is None else experiments.draw_fault_tolerance(outcomes, out)
        _show("fault-tolerance", scale, claims, figures, json=json)


@contextmanager
def _steps() -> Iterator[Callable[[str, float], None]]:
    """Which paper runs, and how far it is: a bar for each, or lines where there is no terminal."""
    with ExitStack() as stack:
        bars: dict[str, Callable[[float], None]] = {}

        def progress(what: str, share: float) -> None:
            if what not in bars:
                stack.close()  # the bar before is done
                typer.echo(what, err=True)
                bars[what] = stack.enter_context(progress_bar("running"))
            bars[what](share)

        yield progress


def _print_all(evaluations: "list[Evaluation]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tidings.experiments import verdicts

    console = Console(highlight=False)
    styles = {"holds": "green", "in part": "yellow", "does not hold": "red"}
    for each in evaluations:
        console.print(Text(f"{each.letter}. {each.title}", style="bold"))
        if each.error is not None:
            console.print(Text(f"could not be run: {each.error}", style="red"))
            continue
        table = Table(box=None, pad_edge=False)
        for heading in ("the paper says", "its figure", "ours", "holds?"):
            table.add_column(heading, overflow="fold")
        for row in each.headlines:
            verdict = Text(row.verdict, style=styles[row.verdict])
            table.add_row(Text(row.says), Text(row.paper), Text(row.measured), verdict)
        print_table(console, table)
        for sentence in each.beyond:
            console.print(Text(f"beyond the paper: {sentence}"))
        console.print()
    console.print(verdicts(evaluations))


def _show(paper: str, scale: str, claims: "list[Claim]", figures: list[Path], *, json: bool) -> None:
    if json:
        print_json({"paper": paper, "scale": scale, "claims": claims, "figures": [str(f) for f in figures]})
        return
    _print(claims)
    for figure in figures:
        typer.echo(f"drew {figure}", err=True)


def _print(claims: "list[Claim]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("claim", "paper", "measured", "sd", "unit"):
        table.add_column(heading, justify="left" if heading in ("claim", "unit") else "right", no_wrap=True)
    for c in claims:
        figures = ("-" if value is None else f"{value:,.4g}" for value in (c.paper, c.measured, c.sd))
        table.add_row(c.id, *figures, c.unit)
    print_table(Console(highlight=False), table)
