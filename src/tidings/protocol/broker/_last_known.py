"""Who subscribes where, for status: by the interests of a broker, or by the last that was known of one forgotten since.

Routing knows nothing of it. At MOST_BROKERS the one that was forgotten first goes; of each, MOST_CLIENTS clients are
kept by name.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidings.protocol._addresses import is_address
from tidings.protocol.broker._interests import Interests, client_of

__all__ = ["LastKnown", "Subscribers"]

MOST_BROKERS: Final = 256
MOST_CLIENTS: Final = 1_000


class Subscribers(NamedTuple):
    """The clients that subscribe at a broker, with how many subscriptions, and how many more clients there are."""

    clients: dict[str, int]
    left_off: int


_NOBODY: Final = Subscribers({}, 0)


class LastKnown:
    """Who subscribes at the other brokers."""

    def __init__(self, interests: Interests) -> None:
        self._interests = interests
        self._forgotten: dict[str, Subscribers] = {}

    def __len__(self) -> int:
        """How many brokers are known that routing has forgotten."""
        return len(self._forgotten)

    def forget(self, broker: str, names: Iterable[str]) -> None:
        """Routing forgets a broker; these were the names of what its clients wanted."""
        self._forgotten.pop(broker, None)
        self._forgotten[broker] = _subscribers(names)
        while len(self._forgotten) > MOST_BROKERS:
            del self._forgotten[next(iter(self._forgotten))]

    def subscribers(self, broker: str) -> Subscribers:
        """Who subscribes at a broker, as far as it is known."""
        if broker in self._interests:
            self._forgotten.pop(broker, None)
            return _subscribers(self._interests.entries(broker))
        return self._forgotten.get(broker, _NOBODY)


def _subscribers(names: Iterable[str]) -> Subscribers:
    # A subscription is named after its client; what is kept under an address is of one that has moved away.
    found = Counter(client_of(name) for name in names if not is_address(name))
    return Subscribers(dict(sorted(found.items())[:MOST_CLIENTS]), max(len(found) - MOST_CLIENTS, 0))
