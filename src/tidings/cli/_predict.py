"""`tidings predict`: who will get what share of its events on time, before anything is run."""

import warnings
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from tidings.cli import _predict_spark
from tidings.cli._output import ROUGH, Json, print_json, print_table, progress_bar, reporting
from tidings.cli._predict_tables import Row, facts, least_reliable, print_unmodelled
from tidings.cli._profile import Taken, taken_for_a_moment
from tidings.cli._scenario_options import ProfileStrategy, ScenarioOrProfiles, Seed
from tidings.cli._shares import share_option
from tidings.cli._spark_options import Environment, Master, Remote, Verbose
from tidings.model.policies import DEFAULT_STRATEGY, Scheme, StrategyName
from tidings.model.units import percent

if TYPE_CHECKING:
    import pyarrow as pa

    from tidings.model.scenario import Network
    from tidings.prediction import Admission, Explanation, Knowledge, Prediction, Sample

__all__ = ["EPILOG", "predict"]

EPILOG = (
    "Try:\n\ntidings predict examples/quickstart.toml\n\n"
    "tidings predict examples/quickstart.toml --explain trader-1\n\n"
    "tidings predict examples/quickstart.toml --plot predicted.png --json\n\n"
    "tidings predict examples/quickstart.toml --spark --out predicted"
)
ROWS_MAX = 20


_Model = Annotated[
    Literal["ours", "gg1", "mm1", "paper"],
    typer.Option(
        "--model",
        help="ours (whole distributions of delay), or mean waits as in the papers: gg1, mm1; with schemes, paper.",
    ),
]
_Scheme = Annotated[
    Scheme | None,
    typer.Option("--scheme", help="Include failures, under this scheme.", show_default=False),
]
_CompareSchemes = Annotated[
    bool, typer.Option("--compare-schemes", help="Rank all schemes for each subscriber, with their costs.")
]
_CheckedEvery = Annotated[
    str | None,
    typer.Option(
        "--checked-every",
        metavar="TIME",
        help="With schemes and profiles: outages were found by checks this far apart.",
        show_default=False,
    ),
]
_Explain = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="SUBSCRIBER",
        help="Show where its time goes, and what to change first.",
        show_default=False,
    ),
]
_Admit = Annotated[
    Path | None,
    typer.Option("--admit", metavar="FILE", help="Advise on a new subscription, written in TOML.", show_default=False),
]
_AtLeast = Annotated[
    float,
    typer.Option(
        "--at-least",
        metavar="SHARE",
        parser=share_option,
        help="With --admit: the least on-time share of any subscriber.",
    ),
]
_Alpha = Annotated[
    float,
    typer.Option("--alpha", metavar="X", help="How precisely the content is known (1: exactly)."),
]
_Expired = Annotated[
    Literal["drop", "forward"] | None,
    typer.Option("--expired", help="What happens to expired events (default: the scenario's).", show_default=False),
]
_Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Simulate too, and draw both against each other.", show_default=False),
]
_Out = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="With Spark: write the table of subscribers.", show_default=False),
]


_Live = Annotated[
    bool, typer.Option("--live", help="SCENARIO is the file of a running network: measure it, then predict.")
]


def predict(
    scenario: ScenarioOrProfiles,
    live: _Live = False,
    model: _Model = "ours",
    scheme: _Scheme = None,
    compare_schemes: _CompareSchemes = False,
    checked_every: _CheckedEvery = None,
    explain: _Explain = None,
    admit: _Admit = None,
    at_least: _AtLeast = 0.9,
    alpha: _Alpha = 1.0,
    expired: _Expired = None,
    strategy: ProfileStrategy = None,
    seed: Seed = None,
    plot: _Plot = None,
    spark: Annotated[bool, typer.Option("--spark", help="Keep subscriptions on Spark: for very many of them.")] = False,
    out: _Out = None,
    master: Master = None,
    remote: Remote = None,
    environment: Environment = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Predict the on-time share of every subscriber, and how long events wait at each broker."""
    with reporting(json=json), ExitStack() as stack:
        from tidings import prediction as room
        from tidings import report
        from tidings.errors import InputError
        from tidings.model.scenario import Scenario
        from tidings.pipeline import local_path

        scenario = local_path(scenario, purpose="read")
        where = _predict_spark.Where(spark, master, remote, environment, verbose, out)
        if where.is_wanted:
            others = {"scheme": scheme, "compare-schemes": compare_schemes or None, "explain": explain, "admit": admit}
            _refuse_on_spark(**others, plot=plot, strategy=strategy)
        source, taken = scenario, None
        if live:
            if where.is_wanted:
                raise InputError("--live measures in this process; leave out --spark, --master and --remote")
            taken = stack.enter_context(taken_for_a_moment(scenario))
            scenario = taken.directory
            strategy = strategy or cast("StrategyName", taken.network.document.network.strategy)
        if scheme is not None or compare_schemes:
            from tidings.cli import _predict_schemes

            others = {"explain": explain, "admit": admit, "plot": plot}
            _predict_schemes.run(
                scenario,
                scheme,
                model=model,
                alpha=alpha,
                seed=seed,
                checked_every=checked_every,
                json=json,
                others=others,
            )
            return
        model = _waiting_model(model)
        if plot is not None:
            report.check_format(plot)
        network = None if scenario.is_dir() else Scenario.load(scenario).expand(seed)
        if network is None:
            _refuse_with_profiles(seed=seed, plot=plot)
            if where.is_wanted:
                _refuse_with_profiles(alpha=None if alpha == 1.0 else alpha)
        elif strategy is not None:
            raise InputError("--strategy is for profiles, which do not contain it; a scenario has it under [policies]")
        drops = None if expired is None else expired == "drop"
        if where.is_wanted:
            _predict_spark.run(scenario, network, where, model=model, alpha=alpha, drops_expired=drops, json=json)
            return
        if network is None:
            tables = room.read_profiles(scenario)
            knowledge = _known(tables, alpha, drops)
            answer = _predict_measured(scenario, tables, knowledge, model, is_precise=alpha == 1.0, strategy=strategy)
        else:
            network = network if expired is None else _with_expired(network, expired)
            answer = room.predict_network(network, model=model, alpha=alpha)
        explanation = None if explain is None else room.explain(answer, explain)
        admission = None
        if admit is not None:
            newcomer = room.load_newcomer(admit)
            if network is None:
                admission = room.admit_measured(tables, knowledge, newcomer, model=model, at_least=at_least)
            else:
                admission = room.admit(network, newcomer, model=model, alpha=alpha, at_least=at_least)
                _warn_about(newcomer.filter, network)
        error = None if network is None or plot is None else _compare(network, answer, plot)
        if json:
            intervals = _intervals(answer) if network is None and answer.sample is None else None
            extras = {"explanation": explanation, "admission": admission, "simulated": error, "intervals": intervals}
            document = _document(str(source), answer, alpha)
            if taken is not None:
                document["window"] = taken.facts()
            print_json(document | {name: value for name, value in extras.items() if value is not None})
        elif explanation is not None:
            _print_explanation(explanation)
        elif admission is not None:
            _print_admission(admission)
        else:
            _print(str(source) if network is None else network.title, answer, error, taken)
        if plot is not None:
            typer.echo(f"drew {plot}", err=True)


def _predict_measured(
    directory: Path,
    tables: "dict[str, pa.Table]",
    knowledge: "Knowledge",
    model: Literal["ours", "gg1", "mm1"],
    *,
    is_precise: bool,
    strategy: StrategyName | None,
) -> "Prediction":
    """From the profiles of a trace."""
    from tidings import prediction as room

    if model != "ours" or not is_precise:
        return room.predict(knowledge, model=model)
    failing = room.failing_of(directory, tables)
    return room.predict_measured(knowledge, failing, strategy=strategy or DEFAULT_STRATEGY)


def _known(tables: "dict[str, pa.Table]", alpha: float, drops_expired: bool | None) -> "Knowledge":
    from tidings import prediction as room

    knowledge = room.imprecise(room.from_profiles(tables), alpha)
    return knowledge if drops_expired is None else replace(knowledge, drops_expired=drops_expired)


def _with_expired(network: "Network", expired: Literal["drop", "forward"]) -> "Network":
    import msgspec

    return msgspec.structs.replace(network, policies=msgspec.structs.replace(network.policies, expired=expired))


def _warn_about(text: str, network: "Network") -> None:
    """A newcomer's filter may be doubtful, as those of the scenario may."""
    from tidings.model.filters import Filter, filter_warnings

    attributes = {name for publisher in network.publishers for name in publisher.attributes}
    for warning in filter_warnings(Filter.parse(text), attributes=attributes):
        warnings.warn(warning, stacklevel=2)


def _waiting_model(model: str) -> Literal["ours", "gg1", "mm1"]:
    from tidings.errors import InputError

    match model:
        case "ours" | "gg1" | "mm1":
            return model
    raise InputError("--model paper is for failures: add --scheme, or choose the paper's gg1 or mm1 for waits")


def _refuse_on_spark(**options: object) -> None:
    from tidings.errors import InputError

    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"--{name} needs all subscriptions in one process; leave out --spark, --master and --remote"
            )


def _refuse_with_profiles(**options: object) -> None:
    from tidings.errors import InputError

    for name, value in options.items():
        if value is not None:
            raise InputError(f"--{name} needs a scenario: profiles are measured as they are; give the scenario's file")


def _intervals(answer: "Prediction") -> dict[str, Any]:
    """By subscription the ends of the interval for R'; the seed is fixed, so the same profiles give the same ends."""
    import numpy as np

    from tidings.prediction import predict_intervals

    found = predict_intervals(answer.knowledge, np.random.default_rng(1), model=answer.model)
    ends = zip(answer.knowledge.subscriptions, found.low.tolist(), found.high.tolist(), strict=True)
    return {
        "level": found.level,
        "assuming": "independent observations",
        "subscribers": {name: [low, high] for name, low, high in ends if low == low},
    }


def _document(source: str, answer: "Prediction", alpha: float) -> dict[str, Any]:
    return {
        "scenario": source,
        "model": answer.model,
        "alpha": alpha,
        "bottleneck": answer.bottleneck,
        "overloaded": answer.overloaded,
        "unmodelled": answer.unmodelled,
        "expected_error": answer.expected_error,
        "sampled": None if answer.sample is None else _sampled(answer, answer.sample),
        "subscribers": answer.subscribers,
        "brokers": answer.brokers,
        "links": answer.links,
    }


def _sampled(answer: "Prediction", sample: "Sample") -> dict[str, Any]:
    """Why there is a sample, and how large it is; each subscriber has its interval."""
    from tidings.statistics import LEVEL

    return {
        "because": list(answer.left_out_by_formulas),
        "events": sample.events,
        "duration_s": sample.duration_s,
        "level": LEVEL,
        "mean_half_width": sample.mean_half_width,
    }


def _compare(network: "Network", answer: "Prediction", path: Path) -> dict[str, float]:
    """Simulate the same network, draw predicted against simulated, and say how far they are apart."""
    import numpy as np

    from tidings.experiments import draw_scatter
    from tidings.simulation import simulate

    with progress_bar("simulating") as progress:
        result = simulate(network, progress=progress)
    seen = list(result.subscribers.values())
    actual = np.array([np.nan if row.on_time_reliability is None else row.on_time_reliability for row in seen])
    known = ~(np.isnan(actual) | np.isnan(answer.reliability))
    draw_scatter({answer.model: (answer.reliability[known], actual[known])}, path, title=network.title)
    counted = np.array([1.0 if row.interval is None else row.interval.effective_events for row in seen])[known]
    variance = actual[known] * (1.0 - actual[known]) / np.maximum(counted, 1.0)
    noise = float(np.sqrt(2.0 / np.pi) * np.sqrt(variance).mean()) if known.any() else 0.0
    error = float(np.abs(actual - answer.reliability)[known].mean()) if known.any() else 0.0
    return {"mean_absolute_error": error, "sampling_noise": noise}


def _print(title: str, answer: "Prediction", error: dict[str, float] | None, taken: "Taken | None") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if title:
        console.print(Text(title, style="bold"))
    rows = answer.subscribers
    known = [row for row in rows.values() if row.on_time_reliability is not None]
    rate = sum(row.matched_per_s for row in known)
    on_time = sum(row.matched_per_s * (row.on_time_reliability or 0.0) for row in known)
    table = facts(answer, on_time / rate if rate else None, rate)
    if taken is not None:
        table.add_row("from", taken.words())
        result = taken.result
        table.add_row("measured", f"{percent(result.delivery_rate)} of {result.matched:,} deliveries on time")
    if error is not None:
        apart, noise = error["mean_absolute_error"], error["sampling_noise"]
        table.add_row("simulated", f"{apart:.4f} apart on average; sampling alone would give {noise:.4f}")
    print_table(console, table)
    ranked = sorted(rows.items(), key=lambda item: _rank(item[1].on_time_reliability))
    if ranked:
        columns = ("matched_per_s", "mean_delay_s", "on_time_reliability", "path", "interval")
        shown = (Row(name, *(getattr(row, column) for column in columns)) for name, row in islice(ranked, ROWS_MAX))
        print_table(console, least_reliable(shown, is_sampled=answer.sample is not None))
    if answer.sample is not None and any(
        row.interval is not None and row.interval.is_rough for _, row in ranked[:ROWS_MAX]
    ):
        console.print(ROUGH, style="dim")
    if len(ranked) > ROWS_MAX:
        console.print(f"and {len(ranked) - ROWS_MAX:,} more; --json shows all", style="dim")


def _rank(share: float | None) -> float:
    return 2.0 if share is None else share  # those without events last


def _print_explanation(explanation: "Explanation") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(explanation.words))
    for journey in explanation.journeys[:ROWS_MAX]:
        quantiles = ", ".join(
            f"{percent(float(q), 0)} within {value:.4g} s"
            for q, value in journey.delay_quantiles_s.items()
            if value is not None
        )
        heading = f"from {journey.publisher}: {percent(journey.share)} of the events, "
        heading += f"{percent(journey.on_time)} of them on time"
        table = Table(title=heading, caption=quantiles or None, title_justify="left", box=None, pad_edge=False)
        table.add_column("hop")
        for column in ("busy", "wait", "service", "propagation"):
            table.add_column(column, justify="right")
        for hop in journey.hops:
            wait = "endless" if hop.wait_s is None else f"{hop.wait_s * 1e3:.3f} ms"
            figures = (f"{hop.service_s * 1e3:.3f} ms", f"{hop.way_s * 1e3:.3f} ms")
            table.add_row(Text(hop.place), percent(hop.utilisation), wait, *figures)
        print_table(console, table)
    for remedy in explanation.remedies:
        console.print(Text(f"  {remedy.change}: {percent(remedy.on_time_reliability)}"))
    print_unmodelled(explanation.unmodelled)


def _print_admission(admission: "Admission") -> None:
    own = percent(admission.on_time_reliability)
    typer.echo(f"{admission.advice}: {admission.reason}")
    typer.echo(f"{admission.newcomer} would get {own}; the others lose {admission.mean_cost:.2e} on average")
    for change in admission.costs[:ROWS_MAX]:
        typer.echo(f"  {change.subscription}: {change.before:.4f} -> {change.after:.4f}")
    print_unmodelled(admission.unmodelled)
