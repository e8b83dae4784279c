"""The protocol: brokers and clients as state machines without I/O.

A machine takes frames, times and confirmations of durability, and gives effects: what to send, store, deliver, and when
to wake it. A driver moves the bytes: `tidings.storm` does it in virtual time with faults, a live broker with sockets.
docs/reference/protocol.md has the messages, the states, the bounds and the guarantees.
"""

from tidings.protocol._broker import Broker, View
from tidings.protocol._client import Client
from tidings.protocol._effects import (
    Close,
    Confirmed,
    Deliver,
    Effect,
    Erase,
    EventId,
    Failed,
    Note,
    Send,
    SetTimer,
    Store,
    Sync,
)
from tidings.protocol._errors import PeerError, RequestError
from tidings.protocol._link_state import LinkStateMap, breadth_first
from tidings.protocol._machine import Bound, Machine
from tidings.protocol._messages import MAX_FRAME_BYTES, VERSION
from tidings.protocol._settings import BrokerSettings, ClientSettings
from tidings.protocol._states import (
    PEER_STEPS,
    TRANSFER_STEPS,
    PeerState,
    PeerStep,
    TransferState,
    TransferStep,
    diagram,
)

__all__ = [
    "MAX_FRAME_BYTES",
    "PEER_STEPS",
    "TRANSFER_STEPS",
    "VERSION",
    "Bound",
    "Broker",
    "BrokerSettings",
    "Client",
    "ClientSettings",
    "Close",
    "Confirmed",
    "Deliver",
    "Effect",
    "Erase",
    "EventId",
    "Failed",
    "LinkStateMap",
    "Machine",
    "Note",
    "PeerError",
    "PeerState",
    "PeerStep",
    "RequestError",
    "Send",
    "SetTimer",
    "Store",
    "Sync",
    "TransferState",
    "TransferStep",
    "View",
    "breadth_first",
    "diagram",
]
