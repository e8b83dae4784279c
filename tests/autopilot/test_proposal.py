"""What an autopilot proposes for a network as it was measured."""

import pytest

from tidings.autopilot import propose
from tidings.model.scenario import Network, Scenario
from tidings.planning import Change, MovePublisher, Objective, UseStrategy

OBJECTIVE = Objective(reliability=0.9)


def row(max_delay: str, *, rate: str = "10 /s", slow_ms: float = 1.0) -> Network:
    """Three brokers; the publisher at a, over a long link from b, its readers at b and c."""
    return Scenario.parse(
        f"""
duration = "10 s"
topology = {{ kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }}
brokers = {{ service = "1 ms" }}
broker = [{{ name = "a", service = "{slow_ms} ms" }}]
links = {{ bandwidth = "1 Mbit/s", propagation = "5 ms" }}
link = [{{ source = "a", target = "b", propagation = "80 ms" }}]
publishers = [{{ name = "p", at = "a", rate = "{rate}", size = "500 B", attributes = {{ x = 1 }} }}]
subscribers = [
    {{ name = "s", at = "b", filter = "x = 1", max_delay = "{max_delay}" }},
    {{ name = "t", at = "c", filter = "x = 1", max_delay = "{max_delay}" }},
]
"""
    ).expand(1)


def everything(_: Change) -> bool:
    return True


def test_a_publisher_far_from_its_readers_is_to_move_to_them() -> None:
    found = propose(row("60 ms"), OBJECTIVE, may=everything)
    (step,) = found.steps
    assert isinstance(step.change, MovePublisher)
    assert step.change.broker in ("b", "c")
    forecast = step.predicted
    assert (forecast.now, forecast.then) == (pytest.approx(1.8), pytest.approx(0.0))
    assert forecast.rehearsed_gain == pytest.approx(1.8, abs=0.05)


def test_what_is_not_permitted_is_not_proposed() -> None:
    found = propose(row("60 ms"), OBJECTIVE, may=lambda change: change == MovePublisher(publisher="p", broker="c"))
    assert [step.change for step in found.steps] in ([], [MovePublisher(publisher="p", broker="c")])
    nothing = propose(row("60 ms"), OBJECTIVE, may=lambda _: False)
    assert nothing.steps == ()
    assert any("deadline" in advice or "max_delay" in advice or "ms" in advice for advice in nothing.advice)


def test_capacity_is_recommended_by_name_and_amount() -> None:
    """The broker of the publisher takes longer for an event than there is between two."""
    network = row("200 ms", rate="30 /s", slow_ms=40)
    found = propose(network, OBJECTIVE, may=lambda change: change.kind == "scheduling")
    assert (found.steps, found.advice) == ((), ("make broker a 1.25 times as fast",))


def test_where_the_profiles_see_no_trouble_nothing_is_proposed() -> None:
    found = propose(row("500 ms"), OBJECTIVE, may=everything)
    assert (found.steps, found.advice) == ((), ())
    assert "not in them" in found.words


def test_changes_are_those_of_the_live_network_and_each_slot_is_changed_once() -> None:
    def as_client(change: MovePublisher | UseStrategy) -> MovePublisher | UseStrategy:
        return MovePublisher(publisher="client", broker="b") if isinstance(change, MovePublisher) else change

    found = propose(row("60 ms"), OBJECTIVE, may=everything, known_as=as_client)
    assert [step.change for step in found.steps] == [MovePublisher(publisher="client", broker="b")]
    assert "move publisher client to b" in found.words


def test_where_the_accounts_contradict_the_prediction_the_accounts_count() -> None:
    """Profiles that have half of the delay: they see no trouble, and yet know where the publisher would be nearer."""
    late = {"s": 0.0, "t": 0.1}
    found = propose(row("150 ms"), OBJECTIVE, may=everything, measured=late)
    (step,) = found.steps
    assert isinstance(step.change, MovePublisher)
    assert step.change.broker in ("b", "c")
    assert step.predicted.now > 1.5
    assert propose(row("150 ms"), OBJECTIVE, may=everything).steps == ()
