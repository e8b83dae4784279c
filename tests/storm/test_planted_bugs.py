"""Tests of the tester: each planted bug is found within a hundred seeds, by the promise that it breaks.

Every kind of fault has to find one by itself (BUGS).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from tidings.errors import TidingsError
from tidings.mqtt import Gateway
from tidings.mqtt.packets import PacketError, Reason
from tidings.protocol import Broker, BrokerSettings, Client, ClientSettings, SetTimer, wire
from tidings.protocol._errors import PeerError
from tidings.protocol.links._outbox import Outbox
from tidings.protocol.links._peers import Outcomes, Peer
from tidings.protocol.node import Admission, Node, Opened
from tidings.protocol.node._commits import Commits
from tidings.protocol.node._effects import Commit
from tidings.protocol.node._session import SessionState
from tidings.storm import KINDS, Process, Storm, StormSettings, run_storm
from tidings.storm._kinds import FaultKind

SETTINGS = StormSettings()
WITHIN = 100


class AcknowledgesTooEarly(Broker):
    """Says that it has an event before its disk does."""

    def _when_durable(self, *what: Any) -> None:
        if what[0] == "ack":
            self._now_durable(what)
        else:
            super()._when_durable(*what)


class _Oblivious:
    """A table that remembers nothing."""

    next_expiry_ns = None

    def has(self, *_: object) -> bool:
        return False

    def has_any(self, _: object) -> bool:
        return False

    def has_room(self, _: int) -> bool:
        return True

    def __len__(self) -> int:
        return 0

    def add(self, *_: object) -> tuple[()]:
        return ()

    def add_all(self, _: object) -> None:
        pass

    def value(self, _: object) -> None:
        return None

    def restore(self, *_: object) -> None:
        pass

    def forget_old(self, _: int) -> tuple[()]:
        return ()


class ForgetsWhatItDelivered(Broker):
    """Gives every copy of an event to its clients."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings, kept)
        self.carrier.memory.seen = _Oblivious()  # type: ignore[assignment]


class KeepsNewcomersToItself(Broker):
    """Does not say that a client which lives elsewhere too has come."""

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self.newcomers.notify = lambda: None  # type: ignore[method-assign]


class DeliversEveryCopy(Client):
    """Gives every copy of an event to the application."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._receiver.is_first = lambda *_: True  # type: ignore[method-assign]


class KeepsStaleRoutes(Broker):
    """Sends events along the first route that it ever found."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings, kept)
        found = self.gossip.links.path
        first: dict[tuple[str, str], Any] = {}

        def stale(root: str, target: str) -> Any:
            if (root, target) not in first and (path := found(root, target)) is not None:
                first[root, target] = path
            return first.get((root, target))

        self.gossip.links.path = stale  # type: ignore[method-assign]


class QueuesWithoutBound(Broker):
    """Lets as many events wait as come."""

    def _outbox(self, max_queued: int) -> Outbox:
        return super()._outbox(1_000_000 * max_queued)


class DropsWithoutAWord(Broker):
    """Does not count what it drops for its clients."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings, kept)
        assert hasattr(self.accounts, "dropped"), "or this bug is none"
        self.accounts.dropped = lambda *_, **__: None  # type: ignore[method-assign]


class TellsNobodyWhatItDropped(Broker):
    """Does not count what it drops on the way."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings, kept)
        assert hasattr(self.accounts, "dropped_in_transit"), "or this bug is none"
        self.accounts.dropped_in_transit = lambda *_, **__: None  # type: ignore[method-assign]


class TakesAllForOne(Broker):
    """Replaces what waits by whatever comes, where the latest of each key is wanted."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings, kept)
        conflation = self.carrier.dispatch.conflation
        keys_of = conflation._keys_of
        conflation._keys_of = lambda *what: dict.fromkeys(keys_of(*what), ())  # type: ignore[method-assign]


class KeepsItsOutcomes(Client):
    """Does not report what became of events."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._receiver._hand_over = self._hand_over  # type: ignore[method-assign]

    def _hand_over(self, subscription: Any, arrival: Any, now_ns: int, **more: Any) -> None:
        unheard = arrival._replace(outcomes=Outcomes())
        type(self._receiver)._hand_over(self._receiver, subscription, unheard, now_ns, **more)


class SendsWhatIsMostUrgent(Broker):
    """Lets the strategy reorder a publisher's events, whoever wants order."""

    def _outbox(self, max_queued: int) -> Outbox:
        outbox = super()._outbox(max_queued)
        columns = outbox.queue._columns
        outbox.queue._columns = lambda *wanted: (columns(*wanted)[0], False)  # type: ignore[method-assign]
        return outbox


class EndsDiallingAfterNoAnswer(Node):
    """Takes a dial that nobody answered for the end of dialling."""

    def lost(self, connection: str, reason: str, now_ns: int, *, code: str = "") -> list[Any]:
        session = self._sessions.get(connection)
        if session is not None and session.target is not None and not session.peer and "did not answer" in reason:
            self._unwant(session.target.name)
        return super().lost(connection, reason, now_ns, code=code)


class _ErasesInTurn(Commits):
    """Erasures wait behind the commit that was refused."""

    def write(self, key: str, value: bytes | None, *, ahead: bool = False) -> None:  # noqa: ARG002
        super().write(key, value)


class NeverHasRoomAgain(Node):
    """Erases what has expired with the commit that there is no room for."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.commits = _ErasesInTurn()


class StaysCongested(Node):
    """Does not hear that a socket is free again."""

    def congested(self, connection: str, now_ns: int, *, is_congested: bool) -> list[Any]:
        return super().congested(connection, now_ns, is_congested=True) if is_congested else []


class ReadsOneFrame(Node):
    """Of all that came over a connection with one read, looks at the first frame only."""

    def turn(self, now_ns: int) -> list[Any]:
        self._came = [(session, frames[:1]) for session, frames in self._came]
        return super().turn(now_ns)


class TrustsItsDisk(Node):
    """Takes the record of every event for what was written."""

    @staticmethod
    def read(stored: Mapping[str, bytes]) -> Opened:  # type: ignore[override]
        events = {key: record[4:] for key, record in stored.items() if key.startswith("event/")}
        found = Node.read({key: record for key, record in stored.items() if key not in events})
        return msgspec.structs.replace(found, kept=found.kept | events)


class DropsWhatIsDamaged(Node):
    """Goes on without damaged records, and without a word."""

    @staticmethod
    def read(stored: Mapping[str, bytes]) -> Opened:  # type: ignore[override]
        return msgspec.structs.replace(Node.read(stored), damaged=())


class _WritesInAnyOrder(Commits):
    """The last word on a key is written where the first one was."""

    def next(self, now_ns: int, *, hurry: bool = False) -> Commit | None:
        commit = super().next(now_ns, hurry=hurry)
        return commit and Commit(dict(sorted(commit.writes.items(), reverse=True)), is_ahead=commit.is_ahead)


class KnowsWhatItDoesNotHave(Node):
    """Writes that an event was delivered before it writes the event."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.commits = _WritesInAnyOrder()


class ForgetsWhatItHeld(Broker):
    """Starts without the events of its store."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings, {key: value for key, value in (kept or {}).items() if not key.startswith("event/")})


class ForgetsWhoIsAway(Broker):
    """Takes a client whose connection is gone for one that is gone for good."""

    def _on_disconnected(self, peer: Peer) -> None:
        super()._on_disconnected(peer)
        if peer.kind == "client" and peer.name in self.clients:
            self._forget_client(peer)


class IgnoresItsFile(Broker):
    """Keeps the neighbours that it began with."""

    def rewire(self, *_: Any) -> list[Any]:
        return []


class CountsToAThousand(Broker):
    """Confirms a client's subscriptions beyond the thousandth, and does not keep them."""

    def _on_message(self, source: Peer, message: wire.Message) -> None:
        if isinstance(message, wire.Subscribe) and len(self.gossip.local.of(source.name)) >= 1_000:
            self._when_durable("done", source, "subscribe", message.entry.name, message.number)
        else:
            super()._on_message(source, message)


class TakesAPauseForCongestion(Broker):
    """Sends nothing more to a client that took no events once: nobody says that its socket is free again."""

    def _on_message(self, source: Peer, message: wire.Message) -> None:
        super()._on_message(source, message)
        if isinstance(message, wire.Credit) and message.credit == 0:
            source.outbox.is_congested = True


class RaisesOnNonsense(Broker):
    """Does not expect frames that cannot be read."""

    def _refuse(self, connection: str, error: PeerError) -> None:  # noqa: ARG002
        raise error


class LivesOnlyOnce(Client):
    """Has the same epoch in every life, and counts its events from the beginning."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(msgspec.structs.replace(settings, epoch=1))


class EndsDiallingUnheard(Node):
    """Takes a connection that was opened and never answered for the end of dialling."""

    def lost(self, connection: str, reason: str, now_ns: int, *, code: str = "") -> list[Any]:
        session = self._sessions.get(connection)
        if (
            session is not None
            and session.target is not None
            and not session.peer
            and session.state is SessionState.CLOSING
        ):
            self._unwant(session.target.name)
        return super().lost(connection, reason, now_ns, code=code)


class DialsOnce(Node):
    """Takes a connection that was reset for one that is not wanted any more."""

    def lost(self, connection: str, reason: str, now_ns: int, *, code: str = "") -> list[Any]:
        session = self._sessions.get(connection)
        if session is not None and session.target is not None and session.peer and "reset" in reason:
            self._unwant(session.target.name)
        return super().lost(connection, reason, now_ns, code=code)


class SkipsLateTimers(Node):
    """Does not do what should have been done a second ago, and waits for it for ever."""

    def wake(self, now_ns: int) -> list[Any]:
        if self._timer_ns is not None and now_ns > self._timer_ns + 10**9:
            return []
        return super().wake(now_ns)


class AdmitsByName(Node):
    """Asks nobody for a token."""

    def __init__(self, *arguments: Any, admission: Admission | None = None, **more: Any) -> None:
        if admission is not None:
            admission = msgspec.structs.replace(admission, broker_token=None, tokens=())
        super().__init__(*arguments, admission=admission, **more)


class TakesAnyKey(Node):
    """Asks nobody for the key that its name belongs to."""

    def _on_preamble(self, *arguments: Any) -> None:
        self.machine.keys_of = lambda _: ()  # type: ignore[method-assign]
        super()._on_preamble(*arguments)
        del self.machine.keys_of


class DoesNotWaitForTheDisk(Node):
    """Takes a commit for failed that took a quarter of a second, and tells nobody."""

    _began_ns = 0

    def _commit(self, now_ns: int) -> None:
        before = self.commits._is_under_way
        super()._commit(now_ns)
        if not before:
            self._began_ns = now_ns

    def committed(self, now_ns: int) -> list[Any]:
        if now_ns - self._began_ns > 250_000_000:
            self.commits._covered = []
        return super().committed(now_ns)


class SpeaksOneVersion(Node):
    """Does not know how the version before its own is spoken."""

    def __init__(self, *arguments: Any, speaks: tuple[int, int], **more: Any) -> None:
        super().__init__(*arguments, speaks=(speaks[1], speaks[1]), **more)


def _takes_the_wall_clock_as_it_is(*, wall_ns: int, steady_ns: int, noted_ns: int) -> int:  # noqa: ARG001
    """Instead of `clock_offset_ns`: time may go backwards from one life to the next."""
    return wall_ns - steady_ns


class ForgetsWhoIsGone(Broker):
    """Keeps what the clients of another broker want no longer than the broker's last sign of life."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(msgspec.structs.replace(settings, forget_ns=settings.timeout_ns), kept)


class ChargesNothingForBuffers(Broker):
    """Takes an event to have been on its link for half of the least round trip, wherever it has waited."""

    def _on_message(self, source: Peer, message: wire.Message) -> None:
        if isinstance(message, wire.Transfer | wire.Publish):
            message = msgspec.structs.replace(message, sent_ns=None)
        super()._on_message(source, message)


class IsNeverWrong(Broker):
    """Adds nothing to the error of an age."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings, kept)
        self._entrance._link_error_ns = lambda *_: 0  # type: ignore[method-assign]


class ForgetsThatClocksDrift(Client):
    """Goes by its first reading of its broker's clock for ever, as if it were a new one."""

    def _on_ping(self, source: Peer, said: wire.Ping) -> None:
        super()._on_ping(source, msgspec.structs.replace(said, yours_ns=None))
        source.meter._read_ns = self._now_ns


class AnswersMqttTooEarly(Gateway):
    """Acknowledges messages that the broker has, and its disk has not."""

    def _finish(self) -> list[Any]:
        for session in self._stirred:
            session.publications.flush()
            for name in list(session.publications._unconfirmed):
                session.publications.settle(name, Reason.SUCCESS)
        return super()._finish()


class AnswersMqttUnread(Gateway):
    """Acknowledges messages and does not publish them."""

    def _finish(self) -> list[Any]:
        for session in self._stirred:
            publications = session.publications
            while publications._waiting:
                publications._settle(publications._waiting.popleft(), Reason.SUCCESS, "")  # type: ignore[union-attr]
        return super()._finish()


class ForgetsWhatMqttClientsWereGiven(Gateway):
    """Does not remember over a restart which messages of QoS 2 it has given to whom, and got from whom."""

    def _restore(self, found: Opened) -> None:
        kept = {key: value for key, value in found.kept.items() if not key.startswith(("given/", "in/"))}
        super()._restore(msgspec.structs.replace(found, kept=kept))


class ForgetsMqttSessions(Gateway):
    """Starts without the sessions of its store."""

    def _restore(self, found: Opened) -> None:
        super()._restore(msgspec.structs.replace(found, kept={}))


class ForgetsMqttClientsThatAreAway(Gateway):
    """Takes a client whose connection broke for one that has left for good."""

    def _part(self, link: Any) -> None:
        session = self._of_link.get(link)
        super()._part(link)
        if session is not None and session.link is None:
            self._end(session)


class RaisesOnMqttNonsense(Gateway):
    """Does not expect packets that cannot be read."""

    def _fault(self, link: Any, error: Any) -> None:  # noqa: ARG002
        raise error


class SendsWhatHasExpired(Gateway):
    """Sends unconfirmed messages again whenever a client returns."""

    def welcome(self, attempt: Any) -> None:
        before = self.sessions.get(attempt.client_id)
        for copy in () if before is None else before.deliveries.out.values():
            if copy is not None:
                copy.ends_ns = None
        super().welcome(attempt)


class MixesUpMessages(Gateway):
    """Takes two events in a row of a publisher for one."""

    def _message(self, event: Any, *what: Any) -> Any:
        return super()._message((*event[:2], event[2] // 2), *what)


class KeepsMqttStoreFull(Gateway):
    """Does not try again what there was no room for."""

    def refused(self, why: str, now_ns: int) -> list[Any]:
        effects = super().refused(why, now_ns)
        return [each for each in effects if not isinstance(each, Commit | SetTimer)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("machines", "check", "first_seed"),
    [
        pytest.param({"make_broker": AcknowledgesTooEarly}, "nothing-lost", 11, id="ack-too-early"),
        pytest.param({"make_client": DeliversEveryCopy}, "at-most-once", 0, id="no-dedupe-at-the-client"),
        pytest.param({"make_broker": ForgetsWhatItDelivered}, "last-hop-once", 0, id="no-dedupe-at-the-last-hop"),
        pytest.param({"make_broker": KeepsStaleRoutes}, "converges", 0, id="stale-route"),
        pytest.param({"make_broker": QueuesWithoutBound}, "within-bounds", 8, id="unbounded-queue"),
        pytest.param({"make_broker": SendsWhatIsMostUrgent}, "sent-in-sequence", 3, id="out-of-sequence"),
        pytest.param({"make_broker": DropsWithoutAWord}, "accounts-balance", 25, id="uncounted-at-home"),
        pytest.param({"make_broker": TellsNobodyWhatItDropped}, "accounts-balance", 35, id="uncounted-on-the-way"),
        pytest.param({"make_broker": TakesAllForOne}, "nothing-lost", 11, id="replaced-by-another-key"),
        pytest.param({"make_client": KeepsItsOutcomes}, "accounts-balance", 0, id="outcomes-unreported"),
        pytest.param({"make_broker": KeepsNewcomersToItself}, "one-home", 4, id="old-home-untold"),
        pytest.param({"node_type": EndsDiallingAfterNoAnswer}, "reconnects", 0, id="dialling-ends"),
        pytest.param({"node_type": NeverHasRoomAgain}, "store-recovers", 17, id="full-for-ever"),
        pytest.param({"node_type": StaysCongested}, "nothing-lost", 2, id="congested-for-ever"),
        pytest.param({"node_type": ReadsOneFrame}, "nothing-lost", 0, id="first-frame-only"),
        pytest.param({"node_type": TakesAnyKey}, "nobody-else", 0, id="any-key"),
        pytest.param({"make_broker": ChargesNothingForBuffers}, "ages-are-true", 0, id="buffers-for-free"),
        pytest.param({"make_broker": IsNeverWrong}, "ages-are-true", 0, id="no-error-added"),
        pytest.param({"make_client": ForgetsThatClocksDrift}, "ages-are-true", 0, id="clocks-drift-for-free"),
    ],
)
def test_is_found(machines: dict[str, Any], check: str, first_seed: int) -> None:
    for seed in range(first_seed, WITHIN):
        if check == "within-bounds" and not Storm(SETTINGS, seed).plan.is_tight:
            continue  # only a storm with tight bounds can outgrow them
        broken = {name for name, _ in run_storm(SETTINGS, seed, **machines).violations}
        if check in broken:
            return
    pytest.fail(f"{check} held for {WITHIN} storms with this bug in")


@pytest.mark.full
@pytest.mark.parametrize(
    ("gateway", "check", "first_seed"),
    [
        pytest.param(AnswersMqttTooEarly, "nothing-lost", 34, id="puback-too-early"),
        pytest.param(AnswersMqttUnread, "mqtt-accepted", 0, id="puback-unread"),
        pytest.param(ForgetsWhatMqttClientsWereGiven, "mqtt-qos-2-once", 5, id="no-dedupe-after-a-restart"),
        pytest.param(ForgetsMqttSessions, "mqtt-session-present", 0, id="sessions-forgotten"),
        pytest.param(SendsWhatHasExpired, "mqtt-in-time", 1, id="stale-after-a-reconnect"),
        pytest.param(MixesUpMessages, "mqtt-no-mismatch", 0, id="mixed-up"),
        pytest.param(KeepsMqttStoreFull, "store-recovers", 1, id="full-for-ever"),
    ],
)
def test_is_found_by_mqtt_clients(gateway: type[Gateway], check: str, first_seed: int) -> None:
    # With a disk that fails, what was acknowledged too early is gone.
    kinds: tuple[FaultKind, ...] = ("disk-error",) if gateway is AnswersMqttTooEarly else ()
    settings = StormSettings(brokers=4, clients=8, duration_s=40.0, mqtt=True, kinds=kinds)
    for seed in range(first_seed, WITHIN):
        if check in {name for name, _ in run_storm(settings, seed, make_gateway=gateway).violations}:
            return
    pytest.fail(f"{check} held for {WITHIN} storms with this bug in")


class Bug(NamedTuple):
    """What storms of one kind of fault find: the promise that it breaks, and the first seed that shows it.

    Storms without faults found none of them (run by hand, two seeds each).
    """

    check: str
    first_seed: int
    machines: Mapping[str, Any] = {}
    patch: tuple[str, Any] | None = None


BUGS: Mapping[FaultKind, Bug] = {
    "bit-flip": Bug("damage-found", 0, {"node_type": DropsWhatIsDamaged}),
    "blackout": Bug("nothing-lost", 0, {"make_broker": AcknowledgesTooEarly}),
    "client-away": Bug("nothing-lost", 0, {"make_broker": ForgetsWhoIsAway}),
    "client-restart": Bug("no-mismatch", 0, {"make_client": LivesOnlyOnce}),
    "client-slow": Bug("nothing-lost", 0, {"make_broker": TakesAPauseForCongestion}),
    "clock-jump": Bug(
        "nothing-lost", 2, patch=(f"{Process.__module__}.clock_offset_ns", _takes_the_wall_clock_as_it_is)
    ),
    "crash": Bug("nothing-lost", 2, {"make_broker": ForgetsWhatItHeld}),
    "cut": Bug("reconnects", 0, {"node_type": EndsDiallingAfterNoAnswer}),
    "disk-error": Bug("nothing-lost", 2, {"make_broker": AcknowledgesTooEarly}),
    "disk-full": Bug("store-recovers", 1, {"node_type": NeverHasRoomAgain}),
    "disk-slow": Bug("one-home", 0, {"node_type": DoesNotWaitForTheDisk}),
    "garbage": Bug("no-exception", 2, {"make_broker": RaisesOnNonsense}),
    "half-cut": Bug("reconnects", 0, {"node_type": EndsDiallingAfterNoAnswer}),
    "impostor": Bug("nobody-else", 0, {"node_type": AdmitsByName}),
    "isolate": Bug("one-home", 0, {"node_type": EndsDiallingAfterNoAnswer}),
    "large-state": Bug("converges", 2, {"make_broker": CountsToAThousand}),
    "long-outage": Bug("nothing-lost", 5, {"make_broker": ForgetsWhoIsGone}),
    "mqtt-away": Bug("mqtt-session-present", 0, {"make_gateway": ForgetsMqttClientsThatAreAway}),
    "mqtt-garbage": Bug("no-exception", 0, {"make_gateway": RaisesOnMqttNonsense}),
    "mute-listener": Bug("one-home", 0, {"node_type": EndsDiallingUnheard}),
    "noise": Bug("nothing-lost", 5, patch=("tidings.protocol.node._frames.is_sound", lambda *_: True)),
    "overload": Bug("within-bounds", 9, {"make_broker": QueuesWithoutBound}),
    "pause": Bug("nothing-lost", 0, {"node_type": SkipsLateTimers}),
    "reset": Bug("reconnects", 0, {"node_type": DialsOnce}),
    "rewire": Bug("reconnects", 0, {"make_broker": IgnoresItsFile}),
    # Lives are counted by the store alone: they begin anew where it is lost.
    "store-lost": Bug("converges", 0, patch=("tidings.protocol._machine._EPOCHS_APART_NS", 10**30)),
    "torn-write": Bug("nothing-lost", 16, {"node_type": KnowsWhatItDoesNotHave}),
    "upgrade": Bug("reconnects", 0, {"node_type": SpeaksOneVersion}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_finds_a_bug(kind: FaultKind, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kind in BUGS, f"no bug is planted for {kind}: nobody knows whether these faults do anything"
    bug, settings = BUGS[kind], StormSettings(kinds=(kind,), large_subscriptions=2_000)
    if bug.patch is not None:
        monkeypatch.setattr(*bug.patch)
    for seed in range(bug.first_seed, WITHIN):
        if bug.check in _broken(settings, seed, bug):
            return
    pytest.fail(f"{bug.check} held for {WITHIN} storms of {kind} with this bug in")


def _broken(settings: StormSettings, seed: int, bug: Bug) -> set[str]:
    if bug.check == "within-bounds" and not Storm(settings, seed).plan.is_tight:
        return set()  # only a storm with tight bounds can outgrow them
    try:
        return {name for name, _ in run_storm(settings, seed, **bug.machines).violations}
    except (PeerError, PacketError):
        return {"no-exception"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("node_type", "kind", "check", "first_seed"),
    [
        pytest.param(TrustsItsDisk, "bit-flip", "no-mismatch", 7, id="unchecked-bits"),
        pytest.param(TrustsItsDisk, "torn-write", "no-exception", 2, id="unchecked-halves"),
    ],
)
def test_damage_is_found(
    node_type: type[Node], kind: FaultKind, check: str, first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("wire", "wire._codec"):  # the checks would find it before it does harm
        monkeypatch.setattr(f"tidings.protocol.{module}.is_sound", lambda *_: True)
    settings = StormSettings(kinds=(kind,))
    for seed in range(first_seed, WITHIN):
        try:
            broken = {name for name, _ in run_storm(settings, seed, node_type=node_type).violations}
        except (msgspec.MsgspecError, ValueError, TidingsError):
            broken = {"no-exception"}  # it could not even start
        if check in broken:
            return
    pytest.fail(f"{check} held for {WITHIN} storms with this bug in")
