"""The network finds a publisher's place by itself: POP and GRAPE over the wire, as the paper's example has it."""

from typing import Any

import pytest

from tidings.errors import ConfigurationError
from tidings.placement import ProfileTable, walk
from tidings.protocol import Broker, BrokerSettings, Moved, breadth_first
from tidings.protocol import wire as messages
from tidings.protocol.relocation._grape import decide

SECOND = 10**9
MS = 10**6

FIGURE = {
    "b1": ("b2", "b4", "b5"),
    "b2": ("b1", "b3"),
    "b3": ("b2",),
    "b4": ("b1",),
    "b5": ("b1", "b6"),
    "b6": ("b5", "b7", "b8"),
    "b7": ("b6",),
    "b8": ("b6",),
}
READERS = {"b1": 1, "b2": 2, "b3": 4, "b4": 3, "b6": 5, "b7": 4, "b8": 6}
"""Figure 1: 25 subscribers of the publisher at b1, 15 of them behind b5; errata: none at b5 itself."""


def build(net: Any, *, left: str = "x >= 0", **more: Any) -> None:
    """The overlay of the figure; readers on the side of the publisher's home want what `left` says."""
    for name, beside in FIGURE.items():
        net.add(net.broker(name, *beside, relocation_stay_ns=0, **more), links=beside)
    net.pass_time(4 * SECOND)
    net.client("p", "b1")
    net.call("p", "advertise", "all", "x >= 0")
    for broker, count in READERS.items():
        for number in range(count):
            net.client(f"{broker}-{number}", broker)
            net.call(f"{broker}-{number}", "subscribe", "all", left if broker < "b5" else "x >= 0")


def publish(net: Any, count: int, *, each_ns: int = 20 * MS) -> None:
    for number in range(count):
        net.call("p", "publish", {"x": number})
        net.pass_time(each_ns)


def control(net: Any, *kinds: str) -> dict[str, int]:
    brokers = [machine for machine in net.machines.values() if isinstance(machine, Broker)]
    return {kind: sum(broker.sent[kind] for broker in brokers) for kind in kinds}


def test_pop_walks_to_b6_as_in_figure_1(wire: Any) -> None:
    build(wire, relocation="pop", relocation_events=4, relocation_per_window=50)
    publish(wire, 4)
    tables = {name: wire.machines[name].coordinator._pop._tables["p"][1] for name in FIGURE}
    assert tables["b1"].local == 1
    assert sorted(tables["b1"].behind.values()) == [3, 6, 15]
    assert tables["b5"].local == 0
    assert tables["b6"].local == 5
    assert wire.machines["p"].home.name == "b6"
    assert control(wire, "RelocationRequest", "RelocationAnswer", "Move", "MigrationUpdate") == {
        "RelocationRequest": 2,
        "RelocationAnswer": 2,
        "Move": 1,
        "MigrationUpdate": 0,  # that one is the client's
    }
    assert wire.machines["p"].sent["MigrationUpdate"] == 1
    assert control(wire, "TraceResult") == {"TraceResult": 4 * 7}
    publish(wire, 6)
    wire.pass_time(SECOND)
    for broker, count in READERS.items():
        for number in range(count):
            assert [e.event[2] for e in wire.delivered(f"{broker}-{number}")] == list(range(10))


def test_the_walk_over_the_wire_is_the_walk_of_placement(wire: Any) -> None:
    numbers = {name: place for place, name in enumerate(FIGURE)}
    tables = {numbers[name]: ProfileTable(tuple(numbers[o] for o in beside)) for name, beside in FIGURE.items()}
    parent = breadth_first(FIGURE, "b1")
    below = dict.fromkeys(FIGURE, 0) | READERS
    for name in sorted(FIGURE, reverse=True):
        if name != "b1":
            below[parent[name]] += below[name]
    for name, beside in FIGURE.items():
        behind = {numbers[other]: below[other] for other in beside if parent.get(other) == name and other != "b1"}
        upstream = None if name == "b1" else numbers[parent[name]]
        tables[numbers[name]].record(local=READERS.get(name, 0), behind=behind, upstream=upstream)
    path = walk(numbers["b1"], tables.__getitem__)
    assert [list(FIGURE)[number] for number in path] == ["b1", "b5", "b6"]
    build(wire, relocation="pop", relocation_events=2)
    publish(wire, 2)
    assert wire.machines["p"].home.name == list(FIGURE)[path[-1]]


def test_grape_moves_to_where_placement_says(wire: Any) -> None:
    build(wire, left="x > 5", relocation="grape", relocation_events=8, relocation_wait_ns=200 * MS)
    decided = []
    surveying = wire.machines["b1"].coordinator._grape
    finish = surveying._finish

    def spy(session: Any, survey: Any) -> None:
        decided.append((surveying._own_answer(session), *survey.answers))
        finish(session, survey)

    surveying._finish = spy
    publish(wire, 8)
    wire.pass_time(SECOND)
    (answers,) = decided
    assert {answer.broker: answer.deliveries for answer in answers} == {
        name: (2 if name < "b5" else 8) * READERS.get(name, 0) for name in FIGURE
    }
    assert {answer.broker: answer.parent for answer in answers} == breadth_first(FIGURE, "b1") | {"b1": ""}
    assert {answer.broker: answer.bits for answer in answers} == {
        name: b"" if name == "b5" else b"\xc0" if name < "b5" else b"\xff" for name in FIGURE
    }
    decision, names = decide(answers, wire.machines["b1"].settings)
    assert (decision.messages_now, decision.messages) == (46, 34)
    assert wire.machines["p"].home.name == names[decision.target] == "b6"
    assert control(wire, "TraceRequest", "TraceAnswer", "Move") == {"TraceRequest": 7, "TraceAnswer": 7, "Move": 1}
    (moved,) = [effect for _, effect in wire.effects if isinstance(effect, Moved)]
    assert (moved.source, moved.target) == ("b1", "b6")


def test_grape_stays_where_the_publisher_is_well_placed(wire: Any) -> None:
    build(wire, left="x > 5", relocation="grape", relocation_events=8, relocation_wait_ns=200 * MS)
    wire.call("p", "move", "b6")
    publish(wire, 20)
    wire.pass_time(2 * SECOND)
    assert wire.machines["p"].home.name == "b6"
    assert control(wire, "Move") == {"Move": 0}


def test_who_does_not_answer_is_done_without(wire: Any) -> None:
    build(wire, left="x > 5", relocation="grape", relocation_events=8, relocation_wait_ns=400 * MS)
    publish(wire, 8)
    wire.links.discard(("b6", "b5"))
    wire.pass_time(1500 * MS)
    assert wire.machines["p"].home.name != "b6"
    assert control(wire, "TraceRequest")["TraceRequest"] > 7  # asked twice


def test_pop_does_without_a_sample_whose_result_is_lost(wire: Any) -> None:
    build(wire, relocation="pop", relocation_events=3, relocation_wait_ns=200 * MS)
    wire.links.discard(("b8", "b6"))
    publish(wire, 2)
    wire.links.add(("b8", "b6"))
    assert wire.machines["p"].home.name == "b1"
    wire.pass_time(2 * SECOND)
    publish(wire, 4)
    assert wire.machines["p"].home.name == "b6"


def test_answers_that_cannot_be_weighed_decide_nothing(wire: Any) -> None:
    build(wire, relocation="grape", relocation_events=2, relocation_wait_ns=200 * MS)
    home = wire.machines["b1"]
    publish(wire, 1)
    wire.links.discard(("b5", "b1"))
    publish(wire, 1)
    wire.pass_time(210 * MS)
    session = home.coordinator._grape._own["p"].session
    absurd = messages.Answer("b5", "b1", b"\x03", 2**40, messages.LONGEST_NS, {})
    home.receive("b5", messages.encode(messages.TraceAnswer(*session, (absurd,))), wire.now_ns)
    wire.pass_time(300 * MS)
    assert home.counts["trace refused"] == 1
    assert wire.machines["p"].home.name == "b1"


def test_an_answer_nobody_asked_for_moves_nobody(wire: Any) -> None:
    build(wire, relocation="pop", relocation_events=50)
    publish(wire, 1)
    wire.frames.append(("b5", "b1", messages.encode(messages.RelocationAnswer("p", "b5", ()))))
    wire.settle()
    assert wire.machines["p"].home.name == "b1"
    assert control(wire, "Move") == {"Move": 0}


@pytest.mark.parametrize("more", [{"scheme": "bypass"}, {"relocation_events": 0}, {"relocation_events": 5_000}])
def test_settings_that_cannot_be_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="relocation 'grape' needs a scheme with buffers"):
        BrokerSettings(name="a", relocation="grape", **more)


def test_questions_do_not_go_in_circles(wire: Any) -> None:
    """A storm in which routes had changed made a million of them: who is not asked by its upstream asks nobody."""
    build(wire, relocation="grape", relocation_events=4, relocation_wait_ns=200 * MS)
    publish(wire, 2)
    session = wire.machines["b1"].coordinator._grape._own["p"].session
    for asked, by in (("b5", "b6"), ("b1", "b5"), ("b6", "b7")):
        before = control(wire, "TraceRequest")
        wire.machines[asked].receive(by, messages.encode(messages.TraceRequest(*session, SECOND)), wire.now_ns)
        assert control(wire, "TraceRequest") == before
    request = messages.encode(messages.TraceRequest(*session, SECOND))
    for _ in range(5):
        wire.frames.append(("b1", "b5", request))
        wire.settle()
    assert control(wire, "TraceRequest", "TraceAnswer") == {"TraceRequest": 3, "TraceAnswer": 3 + 3 + 5}
