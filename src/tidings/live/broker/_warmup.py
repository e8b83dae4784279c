"""Loads or compiles kernels before events need them.

A scratch broker with the same settings does once what the real one will do: it matches an event, queues another one
under the configured strategy, sends both, and decides on a publisher's place if relocation is on.

A process that was forked from a warm one (`_preload`) has everything. Any other takes longer to load the compiler than
to read its store, so it serves while another thread loads. Events are received, stored and acknowledged without
kernels; only the first queue decision waits for them, if it is that early.
"""

import asyncio
import gc
import sys
import time
from typing import Final

import msgspec

from tidings.live.operations._logs import Log
from tidings.protocol import Broker, BrokerSettings, Effect, Send, Sync, wire
from tidings.protocol.node import ClientKey, is_signed

__all__ = ["warm_up", "warming"]

SWITCH_S: Final = 0.00005
"""How long the event loop waits for the loading thread: each call of LMDB lets that thread run."""

_NOW_NS = 10**18
_SECOND_NS = 10**9


async def warming(settings: BrokerSettings, log: Log) -> None:
    """Warm up in another thread while the event loop serves."""
    began_s, before_s = time.monotonic(), sys.getswitchinterval()
    is_slower = before_s > SWITCH_S
    if is_slower:
        sys.setswitchinterval(SWITCH_S)
    try:
        await asyncio.to_thread(warm_up, settings)
    finally:
        if is_slower:
            sys.setswitchinterval(before_s)
    gc.freeze()  # what was loaded stays in memory: collecting it would only delay events
    log.info("warm", seconds=round(time.monotonic() - began_s, 3))


def warm_up(settings: BrokerSettings) -> None:
    """Compile everything that events need."""
    broker = Broker(msgspec.structs.replace(settings, neighbours=frozenset(), graph={}))
    _confirm(broker, broker.start(_NOW_NS))
    broker.connected("client", _NOW_NS)
    broker.receive("client", wire.encode(wire.Hello(wire.VERSION, "client", "client", 1, 1)), _NOW_NS)
    requests: list[wire.Message] = [
        wire.Advertise(broker.epoch, 0, "all", "TRUE"),
        wire.Subscribe(broker.epoch, 1, wire.Entry("some", "symbol = 'S' AND price > 1", _SECOND_NS, 1.0, 0)),
    ]
    content = wire.encode_content(wire.Content({"symbol": "S", "price": 2.5, "volume": 7, "urgent": True}, b"", b""))
    event = wire.Publication(0, _NOW_NS, 0, _SECOND_NS, len(content), content)
    requests += [wire.Publish(1, n, 0, (msgspec.structs.replace(event, sequence=n),)) for n in range(4)]
    for request in requests:
        _confirm(broker, broker.receive("client", wire.encode(request), _NOW_NS))
    for number in range(2):
        ack = wire.Ack(broker.epoch, ((number, number),), 0, 1)
        broker.receive("client", wire.encode(ack), _NOW_NS + (number + 1) * 1_000_000)
    broker.coordinator.warm_up()
    client = ClientKey("secret", "client")  # the library that reads signatures is slow to load, too
    assert is_signed(client.sign(b""), client.public, b"")
    from tidings.scheduling import prepare  # compiled: slow to load

    prepare(settings.strategy)


def _confirm(broker: Broker, effects: list[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, Sync):
            _confirm(broker, broker.synced(effect.token, _NOW_NS))
        assert not isinstance(effect, Send) or effect.connection == "client"
