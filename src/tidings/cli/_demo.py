"""`tidings demo`: a scenario seen from end to end, for a first look."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli._output import Json, print_json, reporting

if TYPE_CHECKING:
    from tidings.model.scenario import Network

__all__ = ["demo"]

EVENTS = 20_000  # sampled over all publishers, by their rates
SHOWN = 12  # subscribers in the table


def demo(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A scenario in TOML.")] = Path(
        "examples/quickstart.toml"
    ),
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the picture goes.")] = Path("demo"),
    json: Json = False,
) -> None:
    """Take a scenario, match its events with its subscriptions, route them, and show who can be reached in time.

    Nothing is queued here: the delay shown is that of an empty network, the least that any event can take.
    """
    with reporting(json=json):
        from tidings import report
        from tidings.model.scenario import Scenario, summarise

        say = _Steps(4)
        say(f"reading {file}")
        network = Scenario.load(file).expand()
        out.mkdir(parents=True, exist_ok=True)
        picture = out / "overlay.svg"
        say(f"drawing the overlay to {picture}")
        report.draw(network, picture)
        say(f"matching {EVENTS:,} events with {len(network.subscriptions):,} subscriptions")
        journeys = _journeys(network)
        say("routing them over the overlay")
        result = {**journeys.pop("traffic"), "picture": str(picture), "subscribers": journeys.pop("subscribers")}
        if json:
            print_json({"file": str(file), **result})
        else:
            report.print_summary(summarise(network))
            report.print_demo(result, shown=SHOWN)


class _Steps:
    """Numbered progress on standard error."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0

    def __call__(self, text: str) -> None:
        self._done += 1
        typer.echo(f"[{self._done}/{self._count}] {text}", err=True)


def _journeys(network: "Network") -> dict[str, Any]:
    """What a sample of the traffic asks of the overlay, and what each subscriber can hope for."""
    import numpy as np

    from tidings.matching import MatchingIndex
    from tidings.routing import Overlay, forwarding_sets, shortest_path_tree

    overlay = Overlay.of(network.topology)
    number = network.topology.index
    home = np.array([number[network.homes[s.subscriber]] for s in network.subscriptions])
    index = MatchingIndex((i, s.filter) for i, s in enumerate(network.subscriptions))
    generator = np.random.default_rng(network.seed)
    rates = np.array([publisher.rate_per_s for publisher in network.publishers])
    counts = generator.multinomial(EVENTS, rates / rates.sum())
    matched = np.zeros(len(home), np.int64)
    least = np.full(len(home), np.inf)
    crossings = copies = 0
    for publisher, count in zip(network.publishers, counts.tolist(), strict=True):
        if not count:
            continue
        tree = shortest_path_tree(overlay, number[publisher.broker])
        delay = _empty_network_delay(network, tree, publisher.size_kb.mean())
        events = publisher.sample_attributes(generator, count)
        offsets, ids = index.match_batch(_batch(events))
        homes = home[ids]
        crossings += len(forwarding_sets(tree, offsets, homes)[1])
        copies += int(np.asarray(tree.depth)[homes].sum())
        matched += np.bincount(ids, minlength=len(home))
        reached = np.unique(ids)
        least[reached] = np.minimum(least[reached], delay[home[reached]])
    links = len(network.topology.links)
    return {
        "traffic": {
            "events": EVENTS,
            "matches_per_event": float(matched.sum() / EVENTS),
            "links_per_event": crossings / EVENTS,
            "links_per_event_unicast": copies / EVENTS,
            "links_per_event_flooding": float(links),
        },
        "subscribers": [
            {
                "id": subscription.id,
                "broker": network.homes[subscription.subscriber],
                "filter": str(subscription.filter),
                "interest": float(matched[i] / EVENTS),
                "least_delay_s": float(least[i]) if matched[i] else None,
                "max_delay_s": subscription.max_delay_s,
            }
            for i, subscription in enumerate(network.subscriptions)
        ],
    }


def _empty_network_delay(network: "Network", tree: Any, size_kb: float) -> Any:
    """Mean time from the publisher's broker to every broker when nothing waits: service, transfer, propagation."""
    import numpy as np

    def mean(law: Any) -> float:
        return 0.0 if law is None else float(law.mean())

    service = np.array([mean(b.service) + mean(b.processing) for b in network.topology.brokers])
    link = np.array([mean(k.propagation) + size_kb * mean(k.slowness) for k in network.topology.links])
    delay = np.zeros(len(service))
    for broker in tree.order:
        up = tree.parent[broker]
        delay[broker] = service[broker] + (delay[up] + link[tree.parent_link[broker]] if broker != tree.root else 0.0)
    return delay


def _batch(events: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(events)
