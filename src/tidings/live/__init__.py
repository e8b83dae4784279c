"""The live network: real brokers, real sockets, real disks.

A broker process (`BrokerNode`) drives the protocol's machine over TCP and an LMDB store; `connect` and
`connect_blocking` are its clients. docs/reference/live.md has the configuration, the promises and the commands.
"""

from tidings.live._blocking import BlockingSubscription, BlockingTidings, connect_blocking
from tidings.live._client import Tidings
from tidings.live._config import Address, Network, read_network
from tidings.live._connecting import connect
from tidings.live._errors import ConnectionLostError, DeniedError, StoreError, StoreFullError
from tidings.live._node import BrokerNode
from tidings.live._subscription import Delivery, Subscription

__all__ = [
    "Address",
    "BlockingSubscription",
    "BlockingTidings",
    "BrokerNode",
    "ConnectionLostError",
    "Delivery",
    "DeniedError",
    "Network",
    "StoreError",
    "StoreFullError",
    "Subscription",
    "Tidings",
    "connect",
    "connect_blocking",
    "read_network",
]
