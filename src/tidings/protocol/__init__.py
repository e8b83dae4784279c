"""The protocol: brokers and clients as state machines without I/O.

A machine takes frames, times and confirmations of durability, and gives effects: what to send, store, deliver, and when
to wake it. A driver moves the bytes: `tidings.storm` does it in virtual time with faults, a live broker with sockets.
docs/reference/protocol.md has the messages, the states, the bounds and the guarantees.

The client loads on first use: a broker has none, and orders nothing.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily
from tidings.protocol import wire
from tidings.protocol._addresses import is_address
from tidings.protocol._budgets import Budget, Purse
from tidings.protocol._effects import (
    Acknowledged,
    Close,
    Confirmed,
    Connect,
    Deliver,
    Disconnect,
    Effect,
    Erase,
    EventId,
    Failed,
    HandedOver,
    Heard,
    Moved,
    Note,
    Send,
    SetTimer,
    Store,
    Sync,
)
from tidings.protocol._errors import FormatError, PeerError, RequestError
from tidings.protocol._filters import parsed, read_filter
from tidings.protocol._histogram import Histogram, at_most, quantile_ns, sum_ns
from tidings.protocol._machine import Bound, Machine
from tidings.protocol._settings import BrokerSettings, ClientSettings, Relocation
from tidings.protocol._states import (
    MOVE_STEPS,
    PEER_STEPS,
    TRANSFER_STEPS,
    MoveState,
    MoveStep,
    PeerState,
    PeerStep,
    TransferState,
    TransferStep,
    diagram,
)
from tidings.protocol.broker._accounts import NOTHING, Account, Balance
from tidings.protocol.broker._broker import Broker
from tidings.protocol.broker._link_state import LinkStateMap, breadth_first
from tidings.protocol.broker._told_names import told_name
from tidings.protocol.broker._view import View
from tidings.protocol.links._peers import Peer
from tidings.protocol.relocation._moves import MoveSeen, MovesView
from tidings.protocol.wire import MAX_FRAME_BYTES, OLDEST_VERSION, VERSION

if TYPE_CHECKING:
    from tidings.protocol.client._client import Client

__all__ = [
    "MAX_FRAME_BYTES",
    "MOVE_STEPS",
    "NOTHING",
    "OLDEST_VERSION",
    "PEER_STEPS",
    "TRANSFER_STEPS",
    "VERSION",
    "Account",
    "Acknowledged",
    "Balance",
    "Bound",
    "Broker",
    "BrokerSettings",
    "Budget",
    "Client",
    "ClientSettings",
    "Close",
    "Confirmed",
    "Connect",
    "Deliver",
    "Disconnect",
    "Effect",
    "Erase",
    "EventId",
    "Failed",
    "FormatError",
    "HandedOver",
    "Heard",
    "Histogram",
    "LinkStateMap",
    "Machine",
    "MoveSeen",
    "MoveState",
    "MoveStep",
    "Moved",
    "MovesView",
    "Note",
    "Peer",
    "PeerError",
    "PeerState",
    "PeerStep",
    "Purse",
    "Relocation",
    "RequestError",
    "Send",
    "SetTimer",
    "Store",
    "Sync",
    "TransferState",
    "TransferStep",
    "View",
    "at_most",
    "breadth_first",
    "diagram",
    "is_address",
    "parsed",
    "quantile_ns",
    "read_filter",
    "sum_ns",
    "told_name",
    "wire",
]

__getattr__ = lazily(__name__, {"Client": "client._client"})[0]
