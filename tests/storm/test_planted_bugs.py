"""Tests of the tester: each planted bug is found within a hundred seeds, by the promise that it breaks."""

from collections.abc import Mapping
from typing import Any

import pytest

from tidings.protocol import Broker, BrokerSettings, Client, ClientSettings
from tidings.protocol.links._outbox import Outbox
from tidings.protocol.node import Node
from tidings.protocol.node._commits import Commits
from tidings.storm import Storm, StormSettings, run_storm

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


class DeliversEveryCopy(Client):
    """Gives every copy of an event to the application."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._receiving.is_first = lambda *_: True  # type: ignore[method-assign]


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


@pytest.mark.parametrize(
    ("machines", "check", "first_seed"),
    [
        pytest.param({"make_broker": AcknowledgesTooEarly}, "nothing-lost", 6, id="ack-too-early"),
        pytest.param({"make_client": DeliversEveryCopy}, "at-most-once", 0, id="no-dedupe-at-the-client"),
        pytest.param({"make_broker": ForgetsWhatItDelivered}, "last-hop-once", 0, id="no-dedupe-at-the-last-hop"),
        pytest.param({"make_broker": KeepsStaleRoutes}, "converges", 0, id="stale-route"),
        pytest.param({"make_broker": QueuesWithoutBound}, "within-bounds", 14, id="unbounded-queue"),
        pytest.param({"node_type": EndsDiallingAfterNoAnswer}, "reconnects", 0, id="dialling-ends"),
        pytest.param({"node_type": NeverHasRoomAgain}, "store-recovers", 18, id="full-for-ever"),
        pytest.param({"node_type": StaysCongested}, "nothing-lost", 4, id="congested-for-ever"),
        pytest.param({"node_type": ReadsOneFrame}, "nothing-lost", 0, id="first-frame-only"),
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
