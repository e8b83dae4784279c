"""What predictions leave out is named: every regime that a scenario can say and the model does not have."""

from pathlib import Path

import msgspec
import pytest

from tidings.model import Scenario
from tidings.model.distributions import Deterministic
from tidings.model.scenario import Faults, Network, Policies, Scheduling, Scheme
from tidings.model.topology import Link
from tidings.prediction import (
    Unmodelled,
    explain,
    failing_network,
    from_network,
    predict,
    predict_schemes,
    unmodelled,
)
from tidings.prediction._unmodelled import unmodelled_profiles
from tidings.simulation import simulate

EXAMPLES = Path(__file__).parents[2] / "examples"
SCENARIO = """
duration = "1 min"
[topology]
kind = "explicit"
brokers = ["a", "b", "c"]
links = [["a", "b"], ["b", "c"]]
[links]
MORE_LINKS
[[link]]
source = "a"
target = "b"
bandwidth = "80 kbit/s"
[brokers]
MORE_BROKERS
[[publishers]]
name = "p"
at = "a"
RATE
size = "1 kB"
lifetime = "10 s"
attributes = { x = 1 }
[[subscribers]]
name = "near"
at = "a"
filter = "x = 1"
[[subscribers]]
name = "far"
at = "c"
filter = "x = 1"
[policies]
"""


def network(policies: str = 'scheduling = "fifo"', *, rate: str = 'rate = "5 /s"', **more: str) -> Network:
    text = SCENARIO.replace("RATE", rate)
    for part in ("links", "brokers"):
        text = text.replace(f"MORE_{part.upper()}", more.get(part, ""))
    return Scenario.parse(text + policies).expand()


def without_queue(link: Link) -> Link:
    return msgspec.structs.replace(link, slowness=None)


def kinds(found: tuple[Unmodelled, ...]) -> list[str]:
    return [each.kind for each in found]


def test_a_network_within_the_model_has_nothing_left_out() -> None:
    assert unmodelled(network()) == ()
    assert predict(from_network(network())).unmodelled == ()


@pytest.mark.parametrize("name", ["rl", "eb", "pc", "lookahead"])
def test_strategies_are_left_out_where_links_have_queues(name: str) -> None:
    (found,) = unmodelled(network(f'scheduling = "{name}"'))
    assert found.kind == "scheduling"
    assert found.what == f'links with the strategy "{name}"'
    assert found.links == ("a -> b", "b -> a")
    answer = predict(from_network(network(f'scheduling = "{name}"')))
    assert answer.unmodelled[0].links == ("a -> b",)  # nobody waits for the way back
    assert answer.subscribers["far"].unmodelled == ("scheduling",)
    assert answer.subscribers["near"].unmodelled == ()


def test_a_strategy_makes_no_difference_where_nobody_waits() -> None:
    idle = network('scheduling = "eb"', rate='rate = "1 /min"')
    assert kinds(unmodelled(idle)) == ["scheduling"]
    assert predict(from_network(idle)).unmodelled == ()


def test_the_shops_by_deadline_are_not_what_is_predicted() -> None:
    shops = Scenario.load(EXAMPLES / "shops.toml").expand()
    policies = msgspec.structs.replace(shops.policies, scheduling=Scheduling(name="eb"))
    by_deadline = msgspec.structs.replace(shops, policies=policies)
    answer = predict(from_network(by_deadline))
    told = answer.subscribers["till-10"]
    truth = simulate(by_deadline).subscribers["till-10"].on_time_reliability
    assert truth is not None
    assert told.on_time_reliability is not None
    assert truth - told.on_time_reliability > 0.1
    assert told.unmodelled == ("scheduling",)
    words = explain(answer, "till-10").words
    assert words.startswith("The predicted on-time share of till-10 is 54.2 %, as if links sent first in, first out.")
    plain = predict(from_network(shops))
    assert explain(plain, "till-10").words.startswith("The predicted on-time share of till-10 is 54.2 %. ")


def test_receivers_that_order_are_left_out_everywhere() -> None:
    (found,) = unmodelled(network('scheduling = "fifo"\nordering = "P-0.05-25"'))
    assert found.kind == "ordering"
    assert found.is_everywhere
    answer = predict(from_network(network('scheduling = "fifo"\nordering = "P-0.05-25"')))
    assert [row.unmodelled for row in answer.subscribers.values()] == [("ordering",), ("ordering",)]


def test_failures_are_left_out_unless_a_scheme_is_asked_for() -> None:
    failing = network(
        'scheduling = "fifo"\nfaults = { scheme = "buffer", retry = "10 ms" }',
        links='failures = { availability = 0.9, period = "1 h" }',
    )
    answer = predict(from_network(failing))
    (found,) = answer.unmodelled
    assert found.kind == "failures"
    assert "--scheme buffer" in found.remedy
    assert answer.subscribers["far"].unmodelled == ("failures",)
    assert answer.subscribers["near"].unmodelled == ()
    found = predict_schemes(answer, failing_network(failing))
    assert found["periodic"].unmodelled == ()
    assert kinds(found["buffer"].unmodelled) == ["backlogs"]  # what was held up queues for a narrow link
    wide = msgspec.structs.replace(failing, topology=failing.topology.map(links=without_queue))
    assert predict_schemes(predict(from_network(wide)), failing_network(wide))["buffer"].unmodelled == ()


@pytest.mark.parametrize(
    ("faults", "scheme", "kind"),
    [
        ('scheme = "buffer", retry = "10 ms", ack = "early"', "buffer", "acknowledgements"),
        ('scheme = "buffer", retry = "10 ms", queues = "volatile"', "buffer", "storage"),
        ('scheme = "bypass", detection = "1 s"', "bypass", "detection"),
        ('scheme = "buffer", retry = "5 s"', "buffer", "retries"),
    ],
)
def test_what_a_scheme_leaves_out(faults: str, scheme: Scheme, kind: str) -> None:
    failing = network(
        f'scheduling = "fifo"\nfaults = {{ {faults} }}', brokers='failures = { availability = 0.9, period = "1 h" }'
    )
    failing = msgspec.structs.replace(failing, topology=failing.topology.map(links=without_queue))
    found = predict_schemes(predict(from_network(failing)), failing_network(failing))
    assert kinds(found[scheme].unmodelled) == [kind]
    assert found[scheme].unmodelled == unmodelled(failing, scheme=scheme)
    assert found["periodic"].unmodelled == ()  # which has none of that


def test_detours_are_longer_than_they_are_predicted() -> None:
    failing = network(brokers='failures = { availability = 0.9, period = "1 h" }')
    assert unmodelled(failing, scheme="bypass") == ()  # there is one way only
    back = Link(source="c", target="a", propagation=Deterministic(value=0.0))
    topology = msgspec.structs.replace(failing.topology, links=(*failing.topology.links, back))
    ring = msgspec.structs.replace(failing, topology=topology, link_failures=(), link_components=())
    assert kinds(unmodelled(ring, scheme="bypass")) == ["detours"]


def test_bursts_and_constant_intervals_are_named() -> None:
    bursty = 'interval = { distribution = "shifted-gamma", shift = "0 s", shape = 0.2, scale = "1 s" }'
    (found,) = unmodelled(network(rate=bursty))
    assert (found.kind, found.publishers) == ("bursts", ("p",))
    (found,) = unmodelled(network(rate='interval = "200 ms"'))
    assert (found.kind, found.effect) == ("regularity", "too low behind several queues")
    (found,) = unmodelled(network(rate='interval = "400 ms"\ncount = 2'))
    assert found.effect == "for the mean over all phases, and too low behind several queues"
    assert found.publishers == ("p-1", "p-2")
    assert unmodelled(network(rate='interval = { distribution = "uniform", low = "0 s", high = "400 ms" }')) == ()


def test_the_papers_methods_leave_dropping_out() -> None:
    for model in ("gg1", "mm1"):
        assert kinds(predict(from_network(network()), model=model).unmodelled) == ["dropping"]  # type: ignore[arg-type]
    forwarding = network('scheduling = "fifo"\nexpired = "forward"')
    assert predict(from_network(forwarding), model="gg1").unmodelled == ()


def test_an_overload_is_predicted_for_the_long_run() -> None:
    late = network('scheduling = "fifo"\nexpired = "forward"', rate='rate = "12 /s"')
    (found,) = predict(from_network(late)).unmodelled
    assert (found.kind, found.links) == ("overload", ("a -> b",))


def test_profiles_do_not_tell_the_policies() -> None:
    knowledge = from_network(network(rate='interval = "200 ms"'))
    intervals = {publisher.name: publisher.interval for publisher in knowledge.publishers}
    components = [
        {"source": "a", "target": None, "failures": 0},
        {"source": "b", "target": None, "failures": 3},
        {"source": "a", "target": "b", "failures": 1},
    ]
    policies, failures, regularity = unmodelled_profiles(knowledge.brokers, knowledge.links, intervals, components)
    assert policies.kind == "policies"
    assert policies.is_everywhere
    assert (failures.kind, failures.brokers, failures.links) == ("failures", ("b",), ("a -> b",))
    assert regularity.kind == "regularity"
    assert kinds(unmodelled_profiles(knowledge.brokers, (), {})) == ["policies"]


def test_every_policy_is_modelled_or_named() -> None:
    """A new key of a scenario's policies has to be put into one of the two."""
    modelled = {"expired", "scheme", "refresh_s", "timeout_s", "tables"}
    named = {"scheduling", "routing", "ordering", "faults", "retry_s", "detection_s", "ack", "queues"}
    refused = {"relocation"}  # in any scenario
    fields = {*Policies.__struct_fields__, *Faults.__struct_fields__}
    assert fields == modelled | named | refused
    several = msgspec.structs.replace(
        network(), policies=Policies(routing="multi-path", scheduling=Scheduling(name="fifo"))
    )
    assert kinds(unmodelled(several)) == ["routing"]
