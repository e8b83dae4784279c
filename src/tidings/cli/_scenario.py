"""`tidings scenario`: check a scenario, and see what it describes."""

from pathlib import Path
from typing import Annotated

import typer

from tidings.cli._output import Json, print_json, reporting
from tidings.cli._scenario_options import ScenarioFile, Seed

__all__ = ["app"]

app = typer.Typer(
    help="Check a scenario, or show the network that it describes.",
    epilog="Try:  tidings scenario show examples/quickstart.toml --picture overlay.svg",
    no_args_is_help=True,
)


@app.command(
    epilog="Try:\n\ntidings scenario check examples/quickstart.toml\n\ntidings scenario check mine.toml --json"
)
def check(file: ScenarioFile, json: Json = False) -> None:
    """Check a scenario; the first error is shown with its file, line, key and remedy."""
    with reporting(json=json):
        from tidings.model.scenario import Scenario

        scenario = Scenario.load(file)
        network = scenario.expand()
        counts = {
            "brokers": len(network.topology.brokers),
            "links": len(network.topology.links),
            "publishers": len(network.publishers),
            "subscriptions": len(network.subscriptions),
        }
        if json:
            doubts = [str(warning) for warning in scenario.warnings(network)]
            print_json({"file": str(file), "title": network.title, "seed": network.seed, **counts, "warnings": doubts})
        else:
            typer.echo(f"{file}: OK: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))


@app.command(
    epilog=(
        "Try:\n\ntidings scenario show examples/quickstart.toml\n\n"
        "tidings scenario show examples/paper-c.toml --seed 3 --picture mesh.png\n\n"
        "tidings scenario show examples/quickstart.toml --json"
    )
)
def show(
    file: ScenarioFile,
    json: Json = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture", metavar="OUT", help="Draw the overlay to this .svg or .png file.", show_default=False
        ),
    ] = None,
    seed: Seed = None,
) -> None:
    """Show the brokers, links, publishers, subscribers and offered load of a scenario."""
    with reporting(json=json):
        from tidings import report
        from tidings.model.scenario import Scenario, summarise

        if picture is not None:
            report.check_format(picture)
        network = Scenario.load(file).expand(seed)
        summary = summarise(network)
        if picture is not None:
            report.draw(network, picture)
            typer.echo(f"drew the overlay to {picture}", err=True)
        if json:
            print_json({"file": str(file), "summary": summary, "picture": None if picture is None else str(picture)})
        else:
            report.print_summary(summary)
