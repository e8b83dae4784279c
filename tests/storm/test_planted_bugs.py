"""Tests of the tester: each planted bug is found within a hundred seeds, by the promise that it breaks."""

from collections.abc import Mapping
from typing import Any

import pytest

from tidings.protocol import Broker, BrokerSettings, Client, ClientSettings
from tidings.protocol.links._outbox import Outbox
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

    def __len__(self) -> int:
        return 0

    def add(self, *_: object) -> tuple[()]:
        return ()

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


@pytest.mark.parametrize(
    ("machines", "check", "first_seed"),
    [
        pytest.param({"make_broker": AcknowledgesTooEarly}, "nothing-lost", 2, id="ack-too-early"),
        pytest.param({"make_client": DeliversEveryCopy}, "at-most-once", 0, id="no-dedupe-at-the-client"),
        pytest.param({"make_broker": ForgetsWhatItDelivered}, "last-hop-once", 0, id="no-dedupe-at-the-last-hop"),
        pytest.param({"make_broker": KeepsStaleRoutes}, "converges", 0, id="stale-route"),
        pytest.param({"make_broker": QueuesWithoutBound}, "within-bounds", 14, id="unbounded-queue"),
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
