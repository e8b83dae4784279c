"""Every pair of policies on a small network: it runs and every event is accounted for, or it is refused by name."""

from itertools import combinations, product
from typing import Any

import msgspec
import pytest

from tidings.errors import ConfigurationError, ScenarioError
from tidings.model import Network, Scenario
from tidings.model.policies import having
from tidings.simulation import Options, Result, simulate

SCENARIO = """
duration = "60 s"
seed = 4
topology = {{ kind = "explicit", brokers = {brokers}, links = {links} }}
[links]
slowness = {{ law = "normal", mean = "60 ms/kB", sd = "20 ms/kB" }}
propagation = {{ law = "exponential", mean = "5 ms" }}
loss = 0.01
{link_failures}
[brokers]
service = {{ law = "exponential", mean = "5 ms" }}
{broker_failures}
[[publishers]]
name = "p"
at = "a"
count = 2
rate = "3 /s"
size = {{ law = "uniform", low = "1 kB", high = "5 kB" }}
attributes = {{ x = {{ law = "uniform", low = 0, high = 10 }} }}
[[subscribers]]
name = "s"
at = "all"
per_broker = 2
filter = "x < {{most}}"
parameters = {{ most = {{ law = "uniform", low = 2, high = 10 }} }}
max_delay = [{{ delay = "400 ms", price = 3 }}, {{ delay = "3 s" }}]
{access}
[policies]
{policies}
"""
BROKERS = ["a", "b", "c", "d", "e"]
LINKS = [["a", "b"], ["b", "c"], ["c", "d"], ["a", "e"], ["e", "d"]]
FAILURES = {
    "link_failures": 'failures = { availability = 0.9, period = "10 s" }',
    "broker_failures": 'failures = { availability = 0.9, period = "20 s" }',
}
ORDERINGS = ("none", "P-0.05-25", "CST-30", "Q-0.99", "ours-record", "ours-quantile")
CHOICES = {
    "scheduling": [name for name in having("strategy", "simulator") if name != "ebpc"] + ["ebpc"],
    "scheme": having("scheme", "simulator"),
    "routing": having("routing", "simulator"),
    "ordering": ORDERINGS,
    "expired": ("drop", "forward"),
    "relocation": having("relocation", "simulator"),
    "access": ("none", "subscribers"),
}
ACCESS = 'access = { slowness = "20 ms/kB", propagation = "5 ms", loss = 0.01 }'
PAIRS = [
    {one: first, other: second}
    for one, other in combinations(CHOICES, 2)
    for first, second in product(CHOICES[one], CHOICES[other])
]


def network(chosen: dict[str, str]) -> Network:
    """The network under some policies; it fails if a scheme is among them."""
    lines = [f'{key} = "{value}"' for key, value in chosen.items() if key in ("routing", "expired")]
    if "scheduling" in chosen:
        value = chosen["scheduling"]
        lines.append('scheduling = { name = "ebpc", r = 0.6 }' if value == "ebpc" else f'scheduling = "{value}"')
    if "relocation" in chosen:
        lines.append(f'relocation = {{ name = "{chosen["relocation"]}", events = 20, stay = "5 s" }}')
    if chosen.get("ordering", "none") != "none":
        lines.append(f'ordering = "{chosen["ordering"]}"')
    if "scheme" in chosen:
        lines.append(f'faults = {{ scheme = "{chosen["scheme"]}", refresh = "5 s", timeout = "30 s", retry = "1 s" }}')
    text = SCENARIO.format(
        brokers=BROKERS,
        links=LINKS,
        policies="\n".join(lines),
        access=ACCESS if chosen.get("access") == "subscribers" else "",
        **(FAILURES if "scheme" in chosen else {"link_failures": "", "broker_failures": ""}),
    )
    return Scenario.parse(text).expand()


def renamed(network: Network) -> Network:
    names = [broker.name for broker in network.topology.brokers]
    new = dict(zip(names, [f"z{len(names) - n}" for n in range(len(names))], strict=True))
    replace = msgspec.structs.replace
    topology = network.topology
    return replace(
        network,
        topology=replace(
            topology,
            brokers=tuple(replace(broker, name=new[broker.name]) for broker in topology.brokers),
            links=tuple(replace(link, source=new[link.source], target=new[link.target]) for link in topology.links),
        ),
        publishers=tuple(replace(p, name="q" + p.name, broker=new[p.broker]) for p in network.publishers),
        subscribers=tuple(replace(s, name="a" + s.name[::-1], broker=new[s.broker]) for s in network.subscribers),
        subscriptions=tuple(
            replace(s, id="a" + s.id[::-1], subscriber="a" + s.subscriber[::-1]) for s in network.subscriptions
        ),
    )


def counts(result: Result) -> dict[str, Any]:
    """Everything but names and the time it took."""
    plain = msgspec.to_builtins(result)
    values = {name: list(plain[name].values()) for name in ("subscribers", "brokers", "links")}
    return {name: value for name, value in plain.items() if name not in (*values, "wall_s")} | values


REFUSED = [pair for pair in PAIRS if "scheme" in pair and pair.get("routing") in ("multi-path", "literal-table")]
FIXED = [
    pair
    for pair in PAIRS
    if pair.get("routing", "single-path") != "single-path" and pair.get("relocation", "off") != "off"
]


@pytest.mark.parametrize("chosen", REFUSED, ids=lambda pair: " ".join(pair.values()))
def test_what_makes_no_sense_is_refused_by_name(chosen: dict[str, str]) -> None:
    remedy = 'write routing = "single-path", "balanced" or "spread"'
    with pytest.raises(ConfigurationError, match=f"routing is '{chosen['routing']}'.*{remedy}"):
        simulate(network(chosen))


@pytest.mark.parametrize("chosen", FIXED, ids=lambda pair: " ".join(pair.values()))
def test_routes_that_are_made_for_one_place_do_not_go_with_relocation(chosen: dict[str, str]) -> None:
    with pytest.raises(ScenarioError, match=f'"{chosen["routing"]}" routes are computed for fixed publishers'):
        network(chosen)


@pytest.mark.parametrize(
    "chosen", [p for p in PAIRS if p not in REFUSED + FIXED], ids=lambda pair: " ".join(pair.values())
)
def test_every_other_pair_runs_and_balances(chosen: dict[str, str]) -> None:
    result = simulate(network(chosen))
    assert result.matched > 500
    assert result.matched == result.on_time + result.late + result.lost + result.in_flight
    assert 0 <= result.dropped <= result.lost
    assert result.on_time > 0
    for row in result.subscribers.values():
        assert row.matched == row.on_time + row.late + row.lost + row.in_flight
    assert (result.faults is not None) == ("scheme" in chosen)
    assert (result.relocation is not None) == (chosen.get("relocation", "off") != "off")
    assert (result.ordering is not None) == (chosen.get("ordering", "none") != "none")


NAMED = [
    {"scheduling": scheduling} | ({} if scheme is None else {"scheme": scheme})
    for scheduling, scheme in product(CHOICES["scheduling"], (None, "periodic", "bypass+buffer"))
]
NAMED += [
    {"scheduling": "lookahead", key: value} for key in ("routing", "ordering", "access") for value in CHOICES[key]
]
NAMED += [{"scheduling": "lookahead", "scheme": "bypass+buffer", "access": "subscribers", "ordering": "ours-record"}]


@pytest.mark.parametrize("chosen", NAMED, ids=lambda chosen: " ".join(chosen.values()))
def test_names_and_repetition_change_nothing(chosen: dict[str, str]) -> None:
    made = network(chosen)
    assert counts(simulate(made)) == counts(simulate(made)) == counts(simulate(renamed(made)))


@pytest.mark.parametrize("scheme", [None, "buffer"])
def test_buffers_change_nothing(scheme: str | None) -> None:
    made = network({"scheduling": "lookahead"} | ({} if scheme is None else {"scheme": scheme}))
    whole = simulate(made)
    pieces = simulate(made, Options(chunk_events=7, steps_per_call=13))
    assert counts(whole) == counts(pieces)
