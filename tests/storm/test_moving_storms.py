"""Clients move in every storm, by themselves and by the network's advice, and bugs in moving do not go unnoticed."""

import secrets
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tidings.protocol import Broker, BrokerSettings, Client, ClientSettings
from tidings.storm import CHECKS, Storm, StormSettings, run_storm, run_storms
from tidings.storm._history import History, Moving
from tidings.storm._invariants import Evidence
from tidings.storm._plan import make_plan
from tidings.storm._run import STAY_NS

BUSY = StormSettings(brokers=5, clients=12, duration_s=45.0, rate_per_s=16.0)
SMALL = StormSettings(brokers=5, clients=12, duration_s=45.0, rate_per_s=5.0)
WITHIN = 100

SLOW = pytest.mark.full


@pytest.mark.parametrize(
    ("relocation", "told"),
    [
        pytest.param("pop", "TraceResult", marks=SLOW),
        pytest.param("grape", "TraceAnswer", marks=SLOW),
        ("on-time", "LinkState"),
    ],
)
def test_publishers_are_moved_by_the_network_and_every_promise_holds(relocation: Any, told: str) -> None:
    report = run_storms(msgspec.structs.replace(BUSY, relocation=relocation), range(3))
    assert report.violations == ()
    assert report.sent["Move"] > 2
    assert report.sent[told] > 20


def asked_too_soon(settings: StormSettings, seed: int, make_broker: type[Broker] = Broker) -> int:
    """How often a publisher was asked to move by an algorithm before it had been left alone for a while."""
    asked: list[tuple[str, int]] = []

    class Watched(make_broker):  # type: ignore[valid-type, misc]
        def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
            super().__init__(settings, kept)
            moves, ask = self.coordinator.moves, self.coordinator.moves.asked

            def note(client: str, target: str, by: str, now_ns: int) -> None:
                asked.append((client, storm.network.now_ns))
                ask(client, target, by, now_ns)

            moves.asked = note

    storm = Storm(settings, seed, make_broker=Watched)
    assert storm.run().violations == ()
    times: dict[str, list[int]] = defaultdict(list)
    for client, at_ns in asked:
        times[client].append(at_ns)
    pauses_ns = [after - before for each in times.values() for before, after in pairwise(each)]
    return sum(pause_ns < 0.999 * STAY_NS for pause_ns in pauses_ns)  # clocks run 100 ppm fast at most


class NeverRests(Broker):
    """Asks a publisher to move on when it has hardly arrived."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(msgspec.structs.replace(settings, relocation_stay_ns=0, relocation_hysteresis=0.0), kept)


@pytest.mark.parametrize("relocation", [*(pytest.param(name, marks=SLOW) for name in ("pop", "grape")), "on-time"])
def test_who_has_just_come_is_left_alone_whatever_fails(relocation: Any) -> None:
    settings = msgspec.structs.replace(BUSY, relocation=relocation)
    assert [asked_too_soon(settings, seed) for seed in range(2)] == [0, 0]


def test_a_broker_that_sends_publishers_to_and_fro_is_found_out() -> None:
    settings = msgspec.structs.replace(BUSY, relocation="on-time")
    assert any(asked_too_soon(settings, seed, NeverRests) for seed in range(WITHIN))


def test_fresh_seeds_move_too() -> None:
    storm = Storm(SMALL, secrets.randbelow(2**40))
    result = storm.run()
    assert result.violations == ()
    assert len(storm.history.moves) >= sum(move.at_ns > 0 for move in storm.history.moves) > 0


def test_without_faults_every_move_is_done() -> None:
    for seed in range(3):
        storm = Storm(StormSettings(brokers=5, clients=12, duration_s=45.0, rate_per_s=5.0, faults=False), seed)
        result = storm.run()
        assert result.violations == ()
        assert result.moves.keys() <= {"done", "refused: moving", "relocated"}
        assert result.moves["done"] >= 1


class ForgetsWhoMoves(Broker):
    """Lets a client go and sends nothing after it."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings, kept)
        self.departures._enter = lambda _: None  # type: ignore[method-assign, assignment]


class CompletesTooEarly(Broker):
    """Says that it has forgotten a client before its disk has."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings, kept)
        when_durable = self._journal.when_durable
        self._journal.when_durable = lambda what: (  # type: ignore[method-assign]
            self._now_durable(what) if what[0] == "departed" else when_durable(what)
        )


class LeavesWithoutAWord(Client):
    """Never tells the home before that it has moved."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._migration._leave = lambda *_: None  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("machines", "check", "first_seed"),
    [
        pytest.param({"make_broker": ForgetsWhoMoves}, "nothing-lost", 42, id="nothing-sent-after", marks=SLOW),
        pytest.param({"make_broker": CompletesTooEarly}, "one-home", 1, id="complete-too-early", marks=SLOW),
        pytest.param({"make_client": LeavesWithoutAWord}, "one-home", 0, id="never-leaves"),
    ],
)
def test_a_planted_bug_is_found(machines: dict[str, Any], check: str, first_seed: int) -> None:
    """Within a hundred seeds, from one on that is known to find it, to be quick."""
    for seed in range(first_seed, first_seed + WITHIN):
        if check in {name for name, _ in run_storm(StormSettings(), seed, **machines).violations}:
            return
    pytest.fail(f"{check} held for {WITHIN} storms with this bug in")


def test_a_move_may_take_as_long_as_its_home_needs_to_read_what_the_client_had_sent() -> None:
    settings, second = StormSettings(faults=False), 10**9
    history, move = History(), Moving(20 * second, "c", "a", "b")
    history.settled_ns[0] = 0
    history.moves.append(move)
    found = []
    for move.done_ns, move.budgeted_ns in (
        (25 * second, 0),
        (27 * second, 0),
        (27 * second, 2 * second),
        (28 * second, 2 * second),
        (None, 2 * second),
    ):
        evidence = Evidence(settings, make_plan(settings, 0), history)
        found.append([text.rpartition(": ")[2] for text in CHECKS["moves-complete"](evidence)])
    assert found == [[], ["7.0 s later"], [], ["8.0 s later"], ["never"]]
