"""The packets of MQTT 5 and 3.1.1 as values and as bytes, for whoever speaks as a client, without I/O."""

from tidings.mqtt._codec import Reader, encode
from tidings.mqtt._packets import (
    V5,
    V311,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    PacketError,
    Ping,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Unsubscribe,
    Wanted,
    Will,
)

__all__ = [
    "V5",
    "V311",
    "Ack",
    "Connack",
    "Connect",
    "Disconnect",
    "Kind",
    "Packet",
    "PacketError",
    "Ping",
    "Publish",
    "Reader",
    "Reason",
    "Suback",
    "Subscribe",
    "Unsubscribe",
    "Wanted",
    "Will",
    "encode",
]
