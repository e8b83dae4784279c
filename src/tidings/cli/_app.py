"""The command tree: one module for each group of commands, and the panels in which `tidings --help` shows them."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tidings.cli import (
    _autopilot,
    _bench,
    _broker,
    _demo,
    _doctor,
    _examples,
    _filter,
    _import,
    _live,
    _order,
    _pipeline,
    _place,
    _plan,
    _predict,
    _profile,
    _publish,
    _rehearse,
    _report,
    _reproduce,
    _scenario,
    _simulate,
    _storm,
    _subscribe,
    _sweep,
    _top,
    _what_if,
)
from tidings.cli._needs import NEEDS
from tidings.extras import install_line

__all__ = ["app"]

RUN, USE, UNDERSTAND, PLAN, STUDY = "Run a network", "Use it", "Understand it", "Plan it", "Study it"
_ORDER = (
    *("up", "status", "top", "autopilot", "broker", "reload", "token", "certificates", "doctor"),
    *("subscribe", "publish", "filter", "bench", "examples"),
    *("demo", "import", "profile", "pipeline", "report", "order"),
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
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _written(extra: str) -> str:
    """The line that installs an extra, with its bracket kept from being read as markup."""
    return install_line(extra).replace("[", "\\[")


def _add(panel: str, command: Callable[..., None], epilog: str, *, short_help: str | None = None) -> None:
    """A command, with the line that installs what it needs."""
    name = command.__name__.replace("_", "-")
    app.command(
        name=name,
        epilog=f"{epilog}\n\nNeeds: {_written(NEEDS[name])}",
        rich_help_panel=panel,
        short_help=short_help,
    )(command)


def _add_group(panel: str, name: str, group: typer.Typer) -> None:
    group.info.epilog = f"Needs: {_written(NEEDS[name])}"
    app.add_typer(group, name=name, rich_help_panel=panel)


_add(RUN, _broker.up, _broker.UP_EPILOG)
_add(RUN, _live.status, _live.STATUS_EPILOG)
_add(RUN, _top.top, _top.EPILOG)
_add(RUN, _autopilot.autopilot, _autopilot.EPILOG)
_add(RUN, _broker.broker, _broker.BROKER_EPILOG)
_add(RUN, _live.reload, _live.RELOAD_EPILOG)
_add_group(RUN, "token", _live.token)
_add(RUN, _live.certificates, _live.CERTIFICATES_EPILOG)
_add(RUN, _doctor.doctor, _doctor.EPILOG)

_add(USE, _subscribe.subscribe, _subscribe.EPILOG)
_add(USE, _publish.publish, _publish.EPILOG)
_add_group(USE, "filter", _filter.app)
_add(USE, _bench.bench, _bench.EPILOG)
_add(USE, _examples.examples, _examples.EPILOG)

_add(UNDERSTAND, _demo.demo, _demo.EPILOG)
_add_group(UNDERSTAND, "import", _import.app)
_add_group(UNDERSTAND, "pipeline", _pipeline.app)
_add(UNDERSTAND, _profile.profile, _profile.EPILOG)
_add(UNDERSTAND, _report.report, _report.EPILOG)
_add_group(UNDERSTAND, "order", _order.app)

_add_group(PLAN, "scenario", _scenario.app)
_add(PLAN, _predict.predict, _predict.EPILOG, short_help="Predict the on-time share of every subscriber.")
_add(PLAN, _plan.plan, _plan.EPILOG, short_help="Find the cheapest changes that meet an objective.")
_add(PLAN, _what_if.what_if, _what_if.EPILOG)
_add(PLAN, _simulate.simulate, _simulate.EPILOG)
_add(PLAN, _place.place, _place.EPILOG)

_add(STUDY, _rehearse.compare, _rehearse.COMPARE_EPILOG)
_add(STUDY, _rehearse.rehearse, _rehearse.REHEARSE_EPILOG)
_add(STUDY, _storm.storm, _storm.EPILOG)
_add(STUDY, _sweep.sweep, _sweep.EPILOG)
_add_group(STUDY, "reproduce", _reproduce.app)


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
