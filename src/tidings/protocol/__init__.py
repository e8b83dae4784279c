"""The protocol: brokers and clients as state machines without I/O.

A machine takes frames, times and confirmations of durability, and returns effects: what to send, store and deliver, and
when to wake it. A driver moves the bytes: `tidings.storm` in virtual time with faults, `tidings.live` with sockets.
docs/reference/protocol.md has the messages, the states, the bounds and the guarantees.

Names load on first use: a client loads no broker, and a broker neither a client nor the ordering.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.protocol import wire
    from tidings.protocol._budgets import Budget, Purse
    from tidings.protocol._effects import (
        Acknowledged,
        Arrival,
        Close,
        Confirmed,
        Connect,
        Deliver,
        DeliverTogether,
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
    from tidings.protocol._machine import Bound, Machine, Sampler
    from tidings.protocol._names import is_address, qualified_name
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
    from tidings.protocol._terms import attributes_of_key, late_ns_of
    from tidings.protocol._trace_context import TRACEPARENT, TRACESTATE, TraceContext, context_in, read_context
    from tidings.protocol.broker._account import NOTHING, Account, Balance
    from tidings.protocol.broker._broker import Broker
    from tidings.protocol.broker._link_state import LinkStateMap, breadth_first
    from tidings.protocol.broker._view import View
    from tidings.protocol.client._bundle import Bundle, Bundles
    from tidings.protocol.client._client import Client
    from tidings.protocol.links._peers import Peer
    from tidings.protocol.relocation._moves import MoveSeen, MovesView
    from tidings.protocol.wire import MAX_FRAME_BYTES, OLDEST_VERSION, VERSION

__all__ = [
    "MAX_FRAME_BYTES",
    "MOVE_STEPS",
    "NOTHING",
    "OLDEST_VERSION",
    "PEER_STEPS",
    "TRACEPARENT",
    "TRACESTATE",
    "TRANSFER_STEPS",
    "VERSION",
    "Account",
    "Acknowledged",
    "Arrival",
    "Balance",
    "Bound",
    "Broker",
    "BrokerSettings",
    "Budget",
    "Bundle",
    "Bundles",
    "Client",
    "ClientSettings",
    "Close",
    "Confirmed",
    "Connect",
    "Deliver",
    "DeliverTogether",
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
    "Sampler",
    "Send",
    "SetTimer",
    "Store",
    "Sync",
    "TraceContext",
    "TransferState",
    "TransferStep",
    "View",
    "at_most",
    "attributes_of_key",
    "breadth_first",
    "context_in",
    "diagram",
    "is_address",
    "late_ns_of",
    "parsed",
    "qualified_name",
    "quantile_ns",
    "read_context",
    "read_filter",
    "sum_ns",
    "wire",
]

__getattr__, __dir__ = lazily(__name__)
