"""What operators see of a broker: metrics, status, logs."""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.live.operations._logs import Log
    from tidings.live.operations._moves import client_moves
    from tidings.live.operations._orders import Outcome, move_clients
    from tidings.live.operations._profiles import ask_windows
    from tidings.live.operations._query import ask_network
    from tidings.live.operations._status import network_status, subscribers_of
    from tidings.live.operations._supervision import ask_to_reload, read_supervision
    from tidings.live.operations._verdict import Trouble, Verdict, links_of

__all__ = [
    "Log",
    "Outcome",
    "Trouble",
    "Verdict",
    "ask_network",
    "ask_to_reload",
    "ask_windows",
    "client_moves",
    "links_of",
    "move_clients",
    "network_status",
    "read_supervision",
    "subscribers_of",
]

__getattr__, __dir__ = lazily(__name__)
