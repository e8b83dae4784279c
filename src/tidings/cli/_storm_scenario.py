"""`tidings storm --scenario`: a scenario on the real protocol, beside what simulator and predictor say of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.cli._output import print_json, print_table, progress_bar
from tidings.cli._predict_tables import print_unmodelled
from tidings.errors import ConfigurationError

if TYPE_CHECKING:
    from tidings.model.scenario import Network
    from tidings.prediction import SchemePrediction
    from tidings.storm import PlayResult

__all__ = ["run"]

_SHOWN = 20


def run(place: Path, *, seed: int | None, scheme: str | None, json: bool) -> None:
    """Play the scenario and print the three answers."""
    import msgspec

    from tidings.model.scenario import Faults, Scenario
    from tidings.prediction import failing_network, from_network, predict, predict_schemes
    from tidings.storm import play

    network = Scenario.load(place).expand(seed)
    if scheme is not None:
        faults = msgspec.structs.replace(network.policies.faults, scheme=scheme)
        try:
            faults = msgspec.convert(msgspec.to_builtins(faults), Faults)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"tidings storm --scheme {scheme}: {error}") from None
        network = msgspec.structs.replace(network, policies=msgspec.structs.replace(network.policies, faults=faults))
    chosen = network.policies.faults.scheme
    found = predict_schemes(predict(from_network(network)), failing_network(network), schemes=(chosen,))[chosen]
    with progress_bar("playing") as progress:
        result = play(network, progress=progress)
    document = _document(network, result, found)
    if json:
        print_json(document)
    else:
        _print(network.title, document)
        print_unmodelled(found.unmodelled)


def _document(network: "Network", result: "PlayResult", found: "SchemePrediction") -> dict[str, Any]:
    simulated, cost = result.simulated, found.overhead
    assert simulated.faults is not None, "a scenario without failures was refused by the predictor"
    predicted = dict(zip((s.id for s in network.subscriptions), found.reliability.tolist(), strict=True))
    subscriptions = {
        id: {
            "matched": played.matched,
            "on_time": played.on_time,
            "late": played.late,
            "on_time_reliability": {
                "protocol": played.on_time_reliability,
                "simulator": simulated.subscribers[id].on_time_reliability,
                "predictor": predicted[id] if played.matched else None,
            },
        }
        for id, played in result.subscriptions.items()
    }
    weight = sum(played.matched * predicted[id] for id, played in result.subscriptions.items() if played.matched)
    return {
        "scheme": result.scheme,
        "seed": result.seed,
        "published": result.published,
        "refused": result.refused,
        "matched": result.matched,
        "unmodelled": found.unmodelled,
        "on_time_reliability": {
            "protocol": result.delivery_rate,
            "simulator": simulated.delivery_rate,
            "predictor": weight / result.matched if result.matched else None,
        },
        "messages_per_event": {
            "protocol": result.messages_per_event,
            "simulator": {kind: count / max(result.published, 1) for kind, count in simulated.faults.messages.items()},
            "predictor": {
                "data": cost.data,
                "ack": cost.acknowledgements,
                "retransmission": cost.retries,
                "refresh": cost.refreshes,
                "link-state": cost.link_state,
            },
        },
        "subscriptions": subscriptions,
    }


def _print(title: str, document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{title}: {document['scheme']}, {document['published']:,} events, {document['refused']:,} refused")
    sources = ("protocol", "simulator", "predictor")
    table = Table(box=None, pad_edge=False)
    for heading in ("", *sources):
        table.add_column(heading, justify="left" if not heading else "right")
    on_time = document["on_time_reliability"]
    table.add_row("on time", *(_figure(on_time[source]) for source in sources))
    for id, row in list(document["subscriptions"].items())[:_SHOWN]:
        table.add_row(f"  {id}", *(_figure(row["on_time_reliability"][source]) for source in sources))
    costs = document["messages_per_event"]
    for kind in ("data", "ack", "retransmission", "refresh", "link-state"):
        table.add_row(f"{kind} per event", *(_figure(costs[source].get(kind)) for source in sources))
    print_table(console, table)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
