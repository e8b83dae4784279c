"""`tidings report`: one HTML page of a pipeline run, to look at and to pass on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli._output import Json, print_json, reporting
from tidings.cli._predict_tables import print_unmodelled

if TYPE_CHECKING:
    from tidings.report import Report

__all__ = ["EPILOG", "report"]

EPILOG = (
    "Try:\n\ntidings simulate examples/quickstart.toml --out trace\n\n"
    "tidings pipeline run trace --out scores\n\n"
    "tidings report scores --scenario examples/quickstart.toml --out report.html"
)


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The directory of a pipeline run.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")] = Path("report.html"),
    scenario: Annotated[
        Path | None,
        typer.Option(
            "--scenario",
            metavar="FILE",
            help="The scenario of the trace: adds its title, map and failures.",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        list[Path] | None,
        typer.Option("--plan", metavar="FILE", help="A plan from `tidings place`; repeatable.", show_default=False),
    ] = None,
    orders: Annotated[
        Path | None,
        typer.Option(
            "--orders", metavar="DIR", help="The output directory of `tidings order replay --out`.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write an HTML page about a pipeline run: who is late, why, and what would help.

    The page is a single file that works offline. With --json, the figures
    are printed as well.
    """
    with reporting(json=json):
        from tidings.pipeline import local_path
        from tidings.report import read_report, write_report

        directory, out = local_path(directory, purpose="read"), _checked(out)

        made = read_report(directory, scenario=scenario, plan=plan or None, orders=orders)
        write_report(made, out)
        if json:
            print_json({"page": str(out), "report": made})
        else:
            _print(made, out)
        typer.echo(f"wrote {out} ({out.stat().st_size / 1000:,.0f} kB)", err=True)


def _checked(out: Path) -> Path:
    """What could not be written is refused before any work is done."""
    from tidings.errors import InputError
    from tidings.pipeline import local_path

    out = local_path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out}: the name of a page ends in .html, for example {out.stem or 'report'}.html")
    if not out.parent.is_dir():
        raise InputError(f"{out}: there is no directory {out.parent}; create it, or write the page elsewhere")
    return out


def _print(made: "Report", out: Path) -> None:
    from tidings.model.units import percent, points

    head = made.headline
    share = "nothing matched"
    if head.reliability is not None:
        share = f"{percent(head.reliability)} of {head.matched:,} deliveries"
    typer.echo(head.title)
    typer.echo(f"on time     {share}")
    if head.worst is not None:
        typer.echo(f"worst       {head.worst}, {percent(head.worst_reliability)} on time")
        typer.echo(f"            {made.subscriptions[0].reason.words}")
    if made.advice is not None:
        typer.echo(f"first       {made.advice.action}: {points(made.advice.now, made.advice.then)}")
    if made.comparison is not None:
        typer.echo(
            f"predicted   mean error {100 * made.comparison.error:.1f} points, of which sampling alone causes "
            f"{100 * made.comparison.noise:.1f}"
        )
        print_unmodelled(made.comparison.unmodelled)
    typer.echo(f"quarantine  {head.bad:,} of {head.rows:,} rows")
    typer.echo(f"page        {out}")
