"""Before the first event: kernels are compiled on their first call, or loaded if they have been; events must not wait
for it.

A scratch broker with the same settings does once what the real one will do: match an event, let another wait in a
queue of the strategy, send both.
"""

import msgspec

from tidings.protocol import Broker, BrokerSettings, Effect, Send, Sync, wire

__all__ = ["warm_up"]

_NOW_NS = 10**18
_SECOND_NS = 10**9


def warm_up(settings: BrokerSettings) -> None:
    """Have everything compiled that events need."""
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


def _confirm(broker: Broker, effects: list[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, Sync):
            _confirm(broker, broker.synced(effect.token, _NOW_NS))
        assert not isinstance(effect, Send) or effect.connection == "client"
