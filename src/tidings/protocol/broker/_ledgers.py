"""Reports to the homes of subscribers: events that this broker has accepted for them, and dropped in transit.

- Every event carries the number of the period in which its publisher's home accepted it. A period lasts PERIOD_NS, or
  until a new incarnation of another broker appears: this one counts from 0, and gets reports of whole periods only.
- Counts are by subscription, and cumulative within the incarnation of the counting broker, so a lost message does no
  harm. Changes are reported every REPORT_NS, and everything again when routes have changed.
- When a period has ended and its last event has expired, the final counts (`is_final`) are sent to the subscribers'
  homes AGAIN times. Homes that are out of reach get them when they are back.
- An event that another broker, or another incarnation of this one, may have accepted before belongs to no period
  (UNAUDITED): it is unknown how often it was counted.
- The counts of a subscription end with it.
- The subscriptions of a dropped event are found when it is dropped, by the filters of its target.

Cost: some 20 bytes per subscription and second, for those with accepted or dropped events; none per event but the
number. At MAX_ROWS the page that was opened first is forgotten, counted.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from tidings.protocol._errors import PeerError
from tidings.protocol._names import is_address
from tidings.protocol._settings import SECOND, BrokerSettings
from tidings.protocol.broker._courses import Course, latest_ns
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._held import Held
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import Ledger, decode_attributes

__all__ = ["MAX_ROWS", "PERIOD_NS", "REPORT_NS", "UNAUDITED", "Ledgers"]

PERIOD_NS: Final = 60 * SECOND
REPORT_NS: Final = 1 * SECOND
AGAIN: Final = 3
UNAUDITED: Final = 0
MAX_ROWS: Final = 262_144
_ROWS: Final = 500
"""The most subscriptions in one message."""


class _Page:
    """The report on the events of one period to one home, for one of its epochs."""

    __slots__ = ("changed", "ends_ns", "finals", "is_over", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, list[int]] = {}  # by subscription: matched, dropped
        self.changed: dict[str, None] = {}
        self.ends_ns = 0  # when its last event expires
        self.is_over = False
        self.finals = 0  # how often the final counts were sent

    def count(self, name: str, matched: int, dropped: int) -> int:
        """Count more for a subscription; how many rows that has added.

        A drop that is taken back may have been counted before this subscription was known: nothing falls below 0.
        """
        row = self.rows.get(name)
        is_new = row is None
        if row is None:
            if dropped < 0:
                return 0
            row = self.rows[name] = [0, 0]
        self.changed[name] = None
        row[0] += matched
        row[1] = max(row[1] + dropped, 0)
        return int(is_new)


_Key = tuple[str, int, str, int]
"""The home and its epoch, the broker that accepted the events, and the period."""


class Ledgers:
    """The ledgers of one broker; `wake_at` asks for a `report`."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        gossip: Gossip,
        next_hop_to: Callable[[str], Peer | None],
        send: Callable[[Peer, Ledger], None],
        count: Callable[[str], None],
        now_ns: Callable[[], int],
        wake_at: Callable[[int], None],
    ) -> None:
        self.period = 1
        """The number that events accepted now carry."""
        self._name = settings.name
        self._kept_ns = settings.max_lifetime_ns
        self._gossip = gossip
        self._next_hop_to = next_hop_to
        self._send = send
        self._count = count
        self._now_ns = now_ns
        self._wake_at = wake_at
        self._epoch = 0
        self._number = 0
        self._epochs_seen = -1
        self._epoch_of: dict[str, int] = {}  # of the other brokers, in this period
        self._began_ns = 0
        self._first = 0  # the first period of this epoch
        self._pages: dict[_Key, _Page] = {}
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def begin(self, epoch: int) -> None:
        """Begin a new epoch."""
        self._epoch = epoch
        self.renew()
        self._first = self.period

    @property
    def is_outdated(self) -> bool:
        """Whether a new period has to begin: another broker has a new epoch, or the time has come."""
        return self._epochs_seen != self._gossip.interests.incarnations or self._now_ns() >= self._began_ns + PERIOD_NS

    def renew(self) -> None:
        """Begin a new period, when everything of the last one is counted. Its number is higher than any before, also of
        earlier epochs."""
        interests = self._gossip.interests
        self._began_ns, self._epochs_seen, self._epoch_of = self._now_ns(), interests.incarnations, interests.epochs()
        self.period = max(self.period + 1, self._began_ns // SECOND)
        for (_, _, root, _), page in self._pages.items():
            page.is_over |= root == self._name

    # -- counting ------------------------------------------------------------------------------------------------

    def accepted(self, course: Course, period: int, many: int) -> None:
        """Count events of this course that were accepted in this period."""
        now_ns = self._now_ns()
        for home, names in course.names.items():
            epoch = self._epoch_of.get(home)
            if epoch is not None:
                page = self._page((home, epoch, self._name, period))
                page.ends_ns = max(page.ends_ns, now_ns + latest_ns(course.targets[home]))
                for name in names:
                    self._rows += page.count(name, many, 0)
        self._keep_bound()

    def dropped(self, held: Held, targets: Iterable[str], many: int = 1) -> None:
        """Count an event for these targets that is dropped here; -1: it had been delivered, after all."""
        homes = [target for target in targets if not is_address(target)]
        if not homes or held.is_restored:
            return  # they may have taken a stored event before
        try:
            wanted = self._gossip.interests.match(decode_attributes(held.content))
        except PeerError:
            return
        epochs = self._gossip.interests.epochs()
        for home in homes:
            epoch = epochs.get(home)
            if epoch is not None and home in wanted:
                page = self._page((home, epoch, held.root, held.period))
                page.ends_ns = max(page.ends_ns, self._now_ns() + self._kept_ns)
                for entry in wanted[home]:
                    self._rows += page.count(entry.name, 0, many)
        self._keep_bound()

    def end(self) -> None:
        """Forget the counts of subscriptions that have ended: one of the same name is another one."""
        ended = self._gossip.interests.ended
        if not ended:
            return
        self._gossip.interests.ended = []
        names: dict[str, set[str]] = {}
        for home, name in ended:
            names.setdefault(home, set()).add(name)
        for key, page in list(self._pages.items()):
            for name in page.rows.keys() & names.get(key[0], ()):
                page.changed.pop(name, None)
                del page.rows[name]
                self._rows -= 1
            if not page.rows:
                del self._pages[key]

    def _page(self, key: _Key) -> _Page:
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = _Page()
        if not page.changed:
            self._wake_at(self._now_ns() + REPORT_NS)
        return page

    def _keep_bound(self) -> None:
        while self._rows > MAX_ROWS:
            self._forget(next(iter(self._pages)))
            self._count("ledger forgotten")

    def _forget(self, key: _Key) -> None:
        self._rows -= len(self._pages.pop(key).rows)

    # -- reporting -----------------------------------------------------------------------------------------------

    def report(self) -> None:
        """Send changed and final counts; forget those that were sent often enough."""
        now_ns = self._now_ns()
        for key, page in list(self._pages.items()):
            is_ours = key[2] == self._name and key[3] >= self._first
            is_final = is_ours and page.is_over and now_ns >= page.ends_ns
            if is_final:
                page.changed = dict.fromkeys(page.rows)
            if not page.changed:
                if not is_ours and now_ns >= page.ends_ns:
                    self._forget(key)
                continue
            if self._send_page(key, page, is_final=is_final):
                page.changed.clear()
                page.finals += is_final
                if page.finals >= AGAIN:
                    self._forget(key)
            elif now_ns >= page.ends_ns + self._kept_ns:
                self._forget(key)
        self._wake_for_next(now_ns)

    def _wake_for_next(self, now_ns: int) -> None:
        """Set the timer of the next report."""
        if self._pages:
            due_ns = now_ns + PERIOD_NS
            for page in self._pages.values():
                due_ns = min(due_ns, now_ns if page.changed or page.finals else page.ends_ns)
            self._wake_at(max(due_ns, now_ns + REPORT_NS))

    def repeat(self) -> None:
        """Send everything again: routes have changed, and reports may have been lost."""
        for page in self._pages.values():
            page.changed = dict.fromkeys(page.rows)
        if self._pages:
            self._wake_at(self._now_ns() + REPORT_NS)

    def _send_page(self, key: _Key, page: _Page, *, is_final: bool) -> bool:
        """Send the changes of a page to its home; whether there is a route to it."""
        home, epoch, root, period = key
        peer = self._next_hop_to(home)
        if peer is None:
            return False
        names = iter(page.changed)
        while some := {name: tuple(page.rows[name]) for name in islice(names, _ROWS)}:
            self._number += 1
            own = (self._name, self._epoch, self._number)
            self._send(peer, Ledger(home, epoch, *own, root, period, some, is_final))  # type: ignore[arg-type]
        return True
