"""Subscription propagation along reverse paths, as one broker sees it: a state machine without I/O.

Rules:

- A subscription travels from its home broker towards publishers along the reverse of their trees. Each broker keeps,
  per shared tree, the neighbour it came from: the next hop of matching events. A message names all the trees that it
  is for, so one message per neighbour and subscription is enough.
- Without advertisements it goes towards every publisher. With them an advertisement floods its publisher's tree, and
  a subscription goes only where an advertisement came from that may intersect it; unknown (None) counts as may.
- With covering a subscription that another one already sent to the same neighbour for the same tree covers (True; None
  does not count) stays behind: an event that it matches comes for the other one anyway. When the other one is
  withdrawn, those it covered are sent.
- What must be sent is sent before what is withdrawn: on links that keep order no event falls into a gap between.
- Every message may be repeated (the second time it changes nothing and sends nothing), and withdrawing what is not
  there is passed over. A subscription or advertisement that turns up from a new side has moved: the new side counts.
- Messages only ever move away from where they began, along trees, so every cascade ends.

Covering compares a new subscription with those sent to the same neighbour: time linear in their number.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tidings.errors import InputError
from tidings.routing._dissemination import BrokerView

LOCAL = -1  # the side of the broker's own clients

Relation = Callable[[Hashable, Hashable], bool | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Subscribe:
    """The sender wants events of these shared trees that match the subscription."""

    subscription: Hashable
    trees: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsubscribe:
    """The sender no longer wants events of these shared trees on behalf of the subscription."""

    subscription: Hashable
    trees: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Advertise:
    """On this shared tree events come from the sender's side that satisfy the advertisement."""

    advertisement: Hashable
    tree: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Unadvertise:
    """No further event comes from the sender's side under this advertisement."""

    advertisement: Hashable
    tree: int


ControlMessage = Subscribe | Unsubscribe | Advertise | Unadvertise
Outgoing = tuple[tuple[int, ControlMessage], ...]


def relation_of_matrix(matrix: NDArray[np.bool_]) -> Relation:
    """The relation between things numbered 0, 1, ... whose answers are `matrix[first, second]`."""

    def related(first: Hashable, second: Hashable) -> bool:
        return bool(matrix[cast(int, first), cast(int, second)])

    return related


@dataclass
class _Side:
    """What was sent to one neighbour for one tree: each with those it covers, and for the covered their coverer."""

    sent: dict[Hashable, dict[Hashable, None]] = field(default_factory=dict)
    coverer: dict[Hashable, Hashable] = field(default_factory=dict)
    advertisements: dict[Hashable, None] = field(default_factory=dict)


class _Changes:
    """Subscriptions to send and to withdraw, per neighbour; one that is both leaves the neighbour as it was."""

    def __init__(self) -> None:
        self._trees: tuple[dict[tuple[int, Hashable], set[int]], ...] = ({}, {})

    def note(self, *, send: bool, neighbour: int, subscription: Hashable, tree: int) -> None:
        opposite = self._trees[not send].get((neighbour, subscription), set())
        if tree in opposite:
            opposite.remove(tree)
        else:
            self._trees[send].setdefault((neighbour, subscription), set()).add(tree)

    def messages(self) -> Outgoing:
        withdrawn, sent = self._trees
        return tuple(
            (neighbour, kind(subscription=subscription, trees=tuple(sorted(trees))))
            for kind, changes in ((Subscribe, sent), (Unsubscribe, withdrawn))
            for (neighbour, subscription), trees in changes.items()
            if trees
        )


class BrokerRouting:
    """The routing state of one broker. Every step returns the (neighbour, message) pairs to send, in order."""

    def __init__(self, view: BrokerView, *, intersects: Relation | None = None, covers: Relation | None = None) -> None:
        """`intersects(advertisement, subscription)`: None works without advertisements. `covers(one, other)`: None
        sends every subscription."""
        self.view = view
        self._intersects = intersects
        self._covers = covers
        self._origin: dict[Hashable, dict[int, int]] = {}
        self._advertised_from: dict[tuple[Hashable, int], int] = {}
        self._sides = {
            (neighbour, tree): _Side() for tree in range(len(view.neighbours)) for neighbour in self._around(tree)
        }

    def subscribe(self, subscription: Hashable) -> Outgoing:
        """A client of this broker subscribes."""
        trees = tuple(tree for tree, around in enumerate(self.view.neighbours) if around is not None)
        return self.receive(Subscribe(subscription=subscription, trees=trees), LOCAL)

    def unsubscribe(self, subscription: Hashable) -> Outgoing:
        """A client of this broker unsubscribes."""
        trees = tuple(self._origin.get(subscription, ()))
        return self.receive(Unsubscribe(subscription=subscription, trees=trees), LOCAL)

    def advertise(self, advertisement: Hashable, tree: int) -> Outgoing:
        """A publisher at this broker, whose events take this shared tree, advertises."""
        return self.receive(Advertise(advertisement=advertisement, tree=tree), LOCAL)

    def unadvertise(self, advertisement: Hashable, tree: int) -> Outgoing:
        """A publisher at this broker withdraws an advertisement."""
        return self.receive(Unadvertise(advertisement=advertisement, tree=tree), LOCAL)

    def receive(self, message: ControlMessage, sender: int) -> Outgoing:
        """A message arrived from this neighbour (or `LOCAL`)."""
        trees = message.trees if isinstance(message, Subscribe | Unsubscribe) else (message.tree,)
        for tree in trees:
            self._require_side(sender, tree)
        match message:
            case Subscribe():
                return self._enter(message.subscription, trees, sender)
            case Unsubscribe():
                return self._leave(message.subscription, trees, sender)
            case Advertise():
                return self._open(message.advertisement, message.tree, sender)
            case Unadvertise():
                return self._close(message.advertisement, message.tree, sender)

    def table(self, tree: int) -> dict[Hashable, int]:
        """Subscription to next hop (a neighbour or `LOCAL`) for events of this shared tree."""
        return {subscription: sides[tree] for subscription, sides in self._origin.items() if tree in sides}

    def next_hops(
        self, matched: Iterable[Hashable], tree: int, came_from: int = LOCAL
    ) -> tuple[tuple[int, ...], tuple[Hashable, ...]]:
        """Where an event of this tree goes on from here: (neighbours, each once; subscriptions of own clients)."""
        hops: set[int] = set()
        local = []
        for subscription in matched:
            hop = self._origin.get(subscription, {}).get(tree)
            if hop == LOCAL:
                local.append(subscription)
            elif hop is not None and hop != came_from:
                hops.add(hop)
        return tuple(sorted(hops)), tuple(local)

    def _around(self, tree: int) -> tuple[int, ...]:
        return self.view.neighbours[tree] or ()

    def _require_side(self, sender: int, tree: int) -> None:
        known = 0 <= tree < len(self.view.neighbours) and self.view.neighbours[tree] is not None
        if not known or (sender != LOCAL and sender not in self._around(tree)):
            raise InputError(
                f"broker {self.view.broker} got a message for shared tree {tree} from {sender}, which is not its "
                "neighbour there: sender and receiver must hold the same routes"
            )

    def _enter(self, subscription: Hashable, trees: tuple[int, ...], sender: int) -> Outgoing:
        changes = _Changes()
        for tree in trees:
            sides = self._origin.setdefault(subscription, {})
            if sides.get(tree) == sender:
                continue
            if tree in sides:
                self._withdraw_everywhere(subscription, tree, changes)
            sides[tree] = sender
            for neighbour in self._around(tree):
                if neighbour != sender:
                    self._offer(subscription, neighbour, tree, changes)
        return changes.messages()

    def _leave(self, subscription: Hashable, trees: tuple[int, ...], sender: int) -> Outgoing:
        changes = _Changes()
        sides = self._origin.get(subscription, {})
        for tree in trees:
            if sides.get(tree) == sender:
                del sides[tree]
                self._withdraw_everywhere(subscription, tree, changes)
        if not sides:
            self._origin.pop(subscription, None)
        return changes.messages()

    def _open(self, advertisement: Hashable, tree: int, sender: int) -> Outgoing:
        before = self._advertised_from.get((advertisement, tree))
        if before == sender:
            return ()
        changes = _Changes()
        self._advertised_from[advertisement, tree] = sender
        if sender != LOCAL:
            self._sides[sender, tree].advertisements[advertisement] = None
            for subscription, sides in self._origin.items():
                if tree in sides and sides[tree] != sender:
                    self._offer(subscription, sender, tree, changes)
        if before is not None:
            self._forget(advertisement, before, tree, changes)
        return self._flood(Advertise(advertisement=advertisement, tree=tree), sender) + changes.messages()

    def _close(self, advertisement: Hashable, tree: int, sender: int) -> Outgoing:
        if self._advertised_from.get((advertisement, tree)) != sender:
            return ()
        changes = _Changes()
        del self._advertised_from[advertisement, tree]
        self._forget(advertisement, sender, tree, changes)
        return self._flood(Unadvertise(advertisement=advertisement, tree=tree), sender) + changes.messages()

    def _flood(self, message: Advertise | Unadvertise, sender: int) -> Outgoing:
        return tuple((neighbour, message) for neighbour in self._around(message.tree) if neighbour != sender)

    def _forget(self, advertisement: Hashable, neighbour: int, tree: int, changes: _Changes) -> None:
        if neighbour == LOCAL:
            return
        side = self._sides[neighbour, tree]
        del side.advertisements[advertisement]
        for subscription in (*side.sent, *side.coverer):
            if not self._wanted(subscription, neighbour, tree):
                self._withdraw(subscription, neighbour, tree, changes)

    def _wanted(self, subscription: Hashable, neighbour: int, tree: int) -> bool:
        if self._intersects is None:
            return neighbour in self.view.towards_publishers[tree]
        advertisements = self._sides[neighbour, tree].advertisements
        return any(self._intersects(advertisement, subscription) is not False for advertisement in advertisements)

    def _offer(self, subscription: Hashable, neighbour: int, tree: int, changes: _Changes) -> None:
        """Send the subscription to this neighbour if it is wanted there and not covered."""
        side = self._sides[neighbour, tree]
        if subscription in side.sent or subscription in side.coverer:
            return
        if not self._wanted(subscription, neighbour, tree):
            return
        coverer = self._coverer(subscription, side.sent)
        if coverer is None:
            side.sent[subscription] = {}
            changes.note(send=True, neighbour=neighbour, subscription=subscription, tree=tree)
        else:
            side.sent[coverer[0]][subscription] = None
            side.coverer[subscription] = coverer[0]

    def _coverer(self, subscription: Hashable, sent: Collection[Hashable]) -> tuple[Hashable] | None:
        if self._covers is None:
            return None
        return next(((other,) for other in sent if self._covers(other, subscription) is True), None)

    def _withdraw_everywhere(self, subscription: Hashable, tree: int, changes: _Changes) -> None:
        for neighbour in self._around(tree):
            self._withdraw(subscription, neighbour, tree, changes)

    def _withdraw(self, subscription: Hashable, neighbour: int, tree: int, changes: _Changes) -> None:
        side = self._sides[neighbour, tree]
        if subscription in side.coverer:
            del side.sent[side.coverer.pop(subscription)][subscription]
        elif subscription in side.sent:
            covered = side.sent.pop(subscription)
            changes.note(send=False, neighbour=neighbour, subscription=subscription, tree=tree)
            for other in covered:
                del side.coverer[other]
                self._offer(other, neighbour, tree, changes)
