"""All brokers' routing states together, with messages carried at once and in order: `Propagation`.

This is what a simulation, a plan or a test needs: the same `BrokerRouting` that a live broker runs, every control
message counted, and the way that an event takes through the tables as they stand.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from tidings.errors import InputError
from tidings.routing._dissemination import plan_dissemination
from tidings.routing._propagation import LOCAL, BrokerRouting, ControlMessage, Outgoing, Relation
from tidings.routing._trees import Tree


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """One control message on its way from a broker to a neighbour."""

    source: int
    target: int
    message: ControlMessage


@dataclass(frozen=True, kw_only=True, slots=True)
class Journey:
    """The way of one event: each (source, target) hop in the order taken, and the (broker, subscription) deliveries."""

    hops: tuple[tuple[int, int], ...]
    deliveries: tuple[tuple[int, Hashable], ...]


class Propagation:
    """Subscription tables of a whole overlay; publishers are numbered as their trees are given.

    Every step returns the control messages it caused, in the order sent; `messages_per_link` adds them up.
    """

    def __init__(
        self, trees: Sequence[Tree], *, intersects: Relation | None = None, covers: Relation | None = None
    ) -> None:
        self.plan = plan_dissemination(trees)
        self.brokers = tuple(BrokerRouting(view, intersects=intersects, covers=covers) for view in self.plan.views)
        self.messages_per_link: Counter[tuple[int, int]] = Counter()
        self._with_advertisements = intersects is not None
        self._home: dict[Hashable, int] = {}
        self._publisher: dict[Hashable, int] = {}

    def subscribe(self, subscription: Hashable, home: int) -> tuple[Sent, ...]:
        if subscription in self._home:
            raise InputError(f"subscription {subscription!r} is already held at broker {self._home[subscription]}")
        if not 0 <= home < len(self.brokers):
            raise InputError(f"subscription {subscription!r} has home {home}: brokers are 0..{len(self.brokers) - 1}")
        self._home[subscription] = home
        return self._carry(home, self.brokers[home].subscribe(subscription))

    def unsubscribe(self, subscription: Hashable) -> tuple[Sent, ...]:
        if subscription not in self._home:
            raise InputError(f"there is no subscription {subscription!r} to withdraw")
        home = self._home.pop(subscription)
        return self._carry(home, self.brokers[home].unsubscribe(subscription))

    def advertise(self, advertisement: Hashable, publisher: int) -> tuple[Sent, ...]:
        if not self._with_advertisements:
            raise InputError(
                f"advertisement {advertisement!r} would change nothing here: "
                "make the propagation with `intersects` to work with advertisements"
            )
        if advertisement in self._publisher:
            raise InputError(f"advertisement {advertisement!r} is already made: withdraw it first")
        self._require_publisher(publisher)
        self._publisher[advertisement] = publisher
        root, tree = self.plan.roots[publisher], self.plan.shared_tree[publisher]
        return self._carry(root, self.brokers[root].advertise(advertisement, tree))

    def unadvertise(self, advertisement: Hashable) -> tuple[Sent, ...]:
        if advertisement not in self._publisher:
            raise InputError(f"there is no advertisement {advertisement!r} to withdraw")
        publisher = self._publisher.pop(advertisement)
        root, tree = self.plan.roots[publisher], self.plan.shared_tree[publisher]
        return self._carry(root, self.brokers[root].unadvertise(advertisement, tree))

    def table(self, broker: int, publisher: int) -> dict[Hashable, int]:
        """Subscription to next hop (a neighbour or `LOCAL`) at this broker for this publisher's events."""
        self._require_publisher(publisher)
        return self.brokers[broker].table(self.plan.shared_tree[publisher])

    def route(self, publisher: int, matched: Iterable[Hashable]) -> Journey:
        """The way of an event that these subscriptions match; a broker knows only those in its own table."""
        self._require_publisher(publisher)
        known = tuple(matched)
        tree = self.plan.shared_tree[publisher]
        hops: list[tuple[int, int]] = []
        deliveries: list[tuple[int, Hashable]] = []
        waiting = deque([(LOCAL, self.plan.roots[publisher])])
        while waiting:
            sender, broker = waiting.popleft()
            neighbours, local = self.brokers[broker].next_hops(known, tree, sender)
            deliveries += [(broker, subscription) for subscription in local]
            hops += [(broker, neighbour) for neighbour in neighbours]
            waiting.extend((broker, neighbour) for neighbour in neighbours)
        return Journey(hops=tuple(hops), deliveries=tuple(deliveries))

    def _require_publisher(self, publisher: int) -> None:
        if not 0 <= publisher < len(self.plan.roots):
            raise InputError(f"publisher {publisher} has no tree: publishers are 0..{len(self.plan.roots) - 1}")

    def _carry(self, broker: int, first: Outgoing) -> tuple[Sent, ...]:
        sent = [Sent(source=broker, target=target, message=message) for target, message in first]
        for letter in sent:  # grows while it is read: answers join at the end
            answers = self.brokers[letter.target].receive(letter.message, letter.source)
            sent += [Sent(source=letter.target, target=target, message=message) for target, message in answers]
        self.messages_per_link.update((letter.source, letter.target) for letter in sent)
        return tuple(sent)
