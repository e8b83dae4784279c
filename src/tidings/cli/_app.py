"""The command tree: one module for each group of commands, and the panels in which `tidings --help` shows them."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tidings.cli import (
    _bench,
    _broker,
    _demo,
    _filter,
    _import,
    _live,
    _order,
    _pipeline,
    _place,
    _plan,
    _predict,
    _publish,
    _rehearse,
    _report,
    _reproduce,
    _scenario,
    _simulate,
    _storm,
    _subscribe,
    _sweep,
    _what_if,
)

__all__ = ["app"]

RUN, USE, UNDERSTAND, PLAN, STUDY = "Run a network", "Use it", "Understand it", "Plan it", "Study it"
_ORDER = (
    *("up", "status", "broker", "reload", "token", "certificates"),
    *("subscribe", "publish", "filter", "bench"),
    *("demo", "import", "pipeline", "report", "order"),
    *("scenario", "predict", "plan", "what-if", "simulate", "place"),
    *("compare", "rehearse", "storm", "sweep", "reproduce"),
)
"""The most used first in each panel; a command that is not named here comes last in its own."""


class _Panels(TyperGroup):
    """Lists commands by `_ORDER`; Typer alone lists groups such as `filter` after all single commands."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer's signature
        return sorted(self.commands, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


app = typer.Typer(
    name="tidings",
    cls=_Panels,
    help="Publish and subscribe with deadlines: run a network, see who gets what on time, plan what to change.",
    epilog=(
        "Start with:\n\n"
        "tidings demo\n\n"
        "tidings up examples/live/network.toml\n\n"
        'tidings subscribe 127.0.0.1:7001 "price > 10"\n\n'
        "tidings predict examples/shops.toml\n\n"
        "tidings scenario show examples/quickstart.toml --picture overlay.svg\n\n"
        "Add --json to any command for one JSON document on standard output. "
        "Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=_broker.UP_EPILOG, rich_help_panel=RUN)(_broker.up)
app.command(epilog=_live.STATUS_EPILOG, rich_help_panel=RUN)(_live.status)
app.command(epilog=_broker.BROKER_EPILOG, rich_help_panel=RUN)(_broker.broker)
app.command(epilog=_live.RELOAD_EPILOG, rich_help_panel=RUN)(_live.reload)
app.add_typer(_live.token, name="token", rich_help_panel=RUN)
app.command(epilog=_live.CERTIFICATES_EPILOG, rich_help_panel=RUN)(_live.certificates)

app.command(epilog=_subscribe.EPILOG, rich_help_panel=USE)(_subscribe.subscribe)
app.command(epilog=_publish.EPILOG, rich_help_panel=USE)(_publish.publish)
app.add_typer(_filter.app, name="filter", rich_help_panel=USE)
app.command(epilog=_bench.EPILOG, rich_help_panel=USE)(_bench.bench)

app.command(epilog=_demo.EPILOG, rich_help_panel=UNDERSTAND)(_demo.demo)
app.add_typer(_import.app, name="import", rich_help_panel=UNDERSTAND)
app.add_typer(_pipeline.app, name="pipeline", rich_help_panel=UNDERSTAND)
app.command(epilog=_report.EPILOG, rich_help_panel=UNDERSTAND)(_report.report)
app.add_typer(_order.app, name="order", rich_help_panel=UNDERSTAND)

app.add_typer(_scenario.app, name="scenario", rich_help_panel=PLAN)
app.command(epilog=_predict.EPILOG, rich_help_panel=PLAN, short_help="Predict the on-time share of every subscriber.")(
    _predict.predict
)
app.command(epilog=_plan.EPILOG, rich_help_panel=PLAN, short_help="Find the cheapest changes that meet an objective.")(
    _plan.plan
)
app.command(name="what-if", epilog=_what_if.EPILOG, rich_help_panel=PLAN)(_what_if.what_if)
app.command(epilog=_simulate.EPILOG, rich_help_panel=PLAN)(_simulate.simulate)
app.command(epilog=_place.EPILOG, rich_help_panel=PLAN)(_place.place)

app.command(epilog=_rehearse.COMPARE_EPILOG, rich_help_panel=STUDY)(_rehearse.compare)
app.command(epilog=_rehearse.REHEARSE_EPILOG, rich_help_panel=STUDY)(_rehearse.rehearse)
app.command(epilog=_storm.EPILOG, rich_help_panel=STUDY)(_storm.storm)
app.command(epilog=_sweep.EPILOG, rich_help_panel=STUDY)(_sweep.sweep)
app.add_typer(_reproduce.app, name="reproduce", rich_help_panel=STUDY)


def _print_version(wanted: bool) -> None:
    if wanted:
        from tidings import __version__

        typer.echo(f"tidings {__version__}")
        raise typer.Exit


@app.callback()
def _tidings(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
