"""The MQTT gateway: MQTT 5 and 3.1.1 clients as clients of a broker, without I/O (docs/guide/mqtt.md)."""

from tidings.mqtt._admission import retaining_client
from tidings.mqtt._bridge import KEEP_ALIVE_S, Bridge, BridgeSettings, bridge_client
from tidings.mqtt._door import Door, DoorEffect, Hand, Sever
from tidings.mqtt._gateway import Gateway, GatewaySettings, Pipe
from tidings.mqtt._mapping import RESERVED
from tidings.mqtt._packets import PacketError, Reason
from tidings.mqtt._retained import RETAINED_FILTER
from tidings.mqtt._topics import matches, topic_filter_sql
from tidings.mqtt._websocket import WebSocket

__all__ = [
    "KEEP_ALIVE_S",
    "RESERVED",
    "RETAINED_FILTER",
    "Bridge",
    "BridgeSettings",
    "Door",
    "DoorEffect",
    "Gateway",
    "GatewaySettings",
    "Hand",
    "PacketError",
    "Pipe",
    "Reason",
    "Sever",
    "WebSocket",
    "bridge_client",
    "matches",
    "retaining_client",
    "topic_filter_sql",
]
