"""The command tree: one module for each group of commands."""

from typing import Annotated

import typer

from tidings.cli import (
    _bench,
    _broker,
    _demo,
    _filter,
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

app = typer.Typer(
    name="tidings",
    help="Content-based publish/subscribe that arrives on time.",
    epilog=(
        "Try:\n\n"
        "tidings scenario show examples/quickstart.toml --picture overlay.svg\n\n"
        "tidings filter explain \"symbol = 'YHOO' AND volume > 1000000\"\n\n"
        "Add --json to any command for one JSON document on standard output. "
        "Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="demo", epilog=_demo.EPILOG)(_demo.demo)
app.add_typer(_scenario.app, name="scenario")
app.add_typer(_filter.app, name="filter")
app.add_typer(_pipeline.app, name="pipeline")
app.add_typer(_order.app, name="order")
app.command(epilog=_simulate.EPILOG)(_simulate.simulate)
app.command(epilog=_storm.EPILOG)(_storm.storm)
app.command(epilog=_rehearse.REHEARSE_EPILOG)(_rehearse.rehearse)
app.command(epilog=_rehearse.COMPARE_EPILOG)(_rehearse.compare)
app.command(epilog=_sweep.EPILOG)(_sweep.sweep)
app.command(epilog=_predict.EPILOG)(_predict.predict)
app.command(epilog=_place.EPILOG)(_place.place)
app.command(epilog=_plan.EPILOG)(_plan.plan)
app.command(name="what-if", epilog=_what_if.EPILOG)(_what_if.what_if)
app.command(epilog=_report.EPILOG)(_report.report)
app.add_typer(_reproduce.app, name="reproduce")
app.command(epilog=_broker.UP_EPILOG)(_broker.up)
app.command(epilog=_broker.BROKER_EPILOG)(_broker.broker)
app.command(epilog=_publish.EPILOG)(_publish.publish)
app.command(epilog=_subscribe.EPILOG)(_subscribe.subscribe)
app.command(epilog=_bench.EPILOG)(_bench.bench)
app.command(epilog=_live.STATUS_EPILOG)(_live.status)
app.command(epilog=_live.RELOAD_EPILOG)(_live.reload)
app.command(epilog=_live.CERTIFICATES_EPILOG)(_live.certificates)
app.add_typer(_live.token, name="token")


def _print_version(wanted: bool) -> None:
    if wanted:
        from tidings import __version__

        typer.echo(f"tidings {__version__}")
        raise typer.Exit


@app.callback()
def _tidings(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass
