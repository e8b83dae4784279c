"""The live network: real brokers, real sockets, real disks.

A broker process (`BrokerNode`) drives the protocol's machine over TCP and an LMDB store; `connect` and
`connect_blocking` are its clients. docs/reference/live.md has the configuration, the promises and the commands.

Names load on first use: a client loads no broker, and a broker no client.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.live._errors import ConnectionLostError, DeniedError, StoreError, StoreFullError
    from tidings.live.broker._node import BrokerNode
    from tidings.live.client._blocking_client import BlockingSubscription, BlockingTidings, connect_blocking
    from tidings.live.client._client import Tidings
    from tidings.live.client._connect import connect
    from tidings.live.client._subscription import Delivery, Subscription
    from tidings.live.configuration._config import Address, Network, read_network

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

__getattr__, __dir__ = lazily(__name__)
