"""The requests of clients: subscriptions and advertisements, stored, and confirmed when they are durable.

The key that a client's name is bound to is stored with its first request, and announced to the other brokers for as
long as anything of the client is stored. With its first subscription the time is stored, too: clients that have come
since an event departed may lack it (`_carrier`).
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final

import msgspec

from tidings.matching import matching_us
from tidings.model.filters import Filter
from tidings.protocol import wire
from tidings.protocol._budgets import reading_us
from tidings.protocol._errors import PeerError
from tidings.protocol._filters import parsed
from tidings.protocol._names import is_reserved
from tidings.protocol._rights import Rights
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._accounts import Accounts
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._journal import Journal
from tidings.protocol.links._peers import Peer

__all__ = ["Registry"]

_SUBSCRIPTION: Final = msgspec.msgpack.Decoder(tuple[str, wire.Entry])
_EVERYTHING: Final = Filter.all_of(())
_SUBSCRIBED: Final = "subscribed"
_ADVERTISED: Final = "advertised"
_CHEAP_US: Final = 0.2
"""The least cost of a filter for each event; filters that cost no more are not noted."""
_ADVERTISEMENT: Final = msgspec.msgpack.Decoder(tuple[str, str, str])


class Registry:
    """The requests of a broker's clients; `deny` refuses one, with the reason, and `spend` is charged for reading a
    filter."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        gossip: Gossip,
        accounts: Accounts,
        journal: Journal,
        now_ns: Callable[[], int],
        deny: Callable[[Peer, str, str, int, PeerError], None],
        spend: Callable[[float], None],
    ) -> None:
        self._settings = settings
        self._gossip = gossip
        self._accounts = accounts
        self._journal = journal
        self._now_ns = now_ns
        self._deny = deny
        self._spend = spend
        self._advertised: dict[str, dict[str, Filter]] = {}
        self._costs: dict[str, dict[tuple[str, str], float]] = {}  # by client: costly filters, by kind and name
        self._costs_us = 0.0  # of all clients together
        self._denied: dict[
            str, list[tuple[str, str, PeerError]]
        ] = {}  # by client: requests that have ended unknown to it

    def handle(self, source: Peer, request: wire.Registration) -> None:
        """Carry out a request, or refuse it."""
        kind = type(request).__name__.lower()
        name = request.entry.name if isinstance(request, wire.Subscribe) else request.name
        try:
            match request:
                case wire.Subscribe():
                    self._spend(reading_us(request.entry.filter))
                    if source.rights is not None:
                        source.rights.require_subscribe(source.name, request.entry)
                    self._subscribe(source, request.entry)
                case wire.Unsubscribe():
                    self._unsubscribe(source.name, request.name)
                case wire.Advertise():
                    self._spend(reading_us(request.filter))
                    if source.rights is not None:
                        _require(source.rights.may_advertise(parsed(request.filter)), source.name, "advertise")
                    self._advertise(source, request.name, request.filter)
                case _:
                    self._unadvertise(source.name, request.name)
        except PeerError as error:
            self._deny(source, kind, name, request.number, error)
        else:
            self.bind(source)
            self._journal.when_durable(("done", source, kind, name, request.number))

    def bind(self, client: Peer) -> None:
        """Store and announce the key that a client's name is bound to, if anything of the client is stored."""
        key = client.key if self.knows(client.name) else b""
        if self._gossip.local.bind(client.name, key):
            if key:
                self._journal.store(f"identity/{client.name}", key)
            else:
                self._journal.erase(f"identity/{client.name}")

    def restore_key(self, client: Peer, key: bytes) -> None:
        """Restore the key of a client's name."""
        client.key = key
        self._gossip.local.bind(client.name, key)

    def restore_arrival(self, client: str, value: bytes) -> None:
        """Restore since when a client has subscriptions here."""
        self._gossip.local.came(client, int(value))

    def restore(self, kind: str, value: bytes) -> str:
        """Restore a request from the durable store; its client."""
        if kind == "subscription":
            client, entry = _SUBSCRIPTION.decode(value)
            self._gossip.local.put(client, entry)
            self._charge(client, _SUBSCRIBED, entry.name, matching_us(parsed(entry.filter)))
        else:
            client, name, text = _ADVERTISEMENT.decode(value)
            promised = self._advertised.setdefault(client, {})[name] = _promised(text)
            self._charge(client, _ADVERTISED, name, matching_us(promised))
        return client

    def recover(self, client: str, entry: wire.Entry) -> None:
        """Restore a subscription that was lost with the durable store, from what other brokers know."""
        if entry.name not in self._gossip.local.of(client):
            self._gossip.local.put(client, entry)
            self._charge(client, _SUBSCRIBED, entry.name, matching_us(parsed(entry.filter)))
            self._journal.store(_key("subscription", client, entry.name), msgspec.msgpack.encode((client, entry)))

    def knows(self, client: str) -> bool:
        """Whether the client has a request that still stands."""
        return bool(self._advertised.get(client)) or bool(self._gossip.local.of(client))

    def forget(self, client: str) -> None:
        """Forget a client and all its requests."""
        self._denied.pop(client, None)
        self._accounts.forget(client, self._gossip.local.of(client))
        if self._gossip.local.of(client):
            self._journal.erase(f"came/{client}")
        for name in list(self._gossip.local.of(client)):
            self._gossip.local.drop(client, name)
            self._journal.erase(_key("subscription", client, name))
        for name in self._advertised.pop(client, {}):
            self._journal.erase(_key("advertisement", client, name))
        self._costs_us -= sum(self._costs.pop(client, {}).values())
        if self._gossip.local.bind(client, b""):
            self._journal.erase(f"identity/{client}")

    def restrict(self, client: Peer, rights: Rights) -> None:
        """End the requests of a client that its rights no longer allow."""
        denied = self._denied.setdefault(client.name, [])
        for entry in list(self._gossip.local.of(client.name).values()):
            try:
                rights.require_subscribe(client.name, entry)
            except PeerError as why:
                self._unsubscribe(client.name, entry.name)
                denied.append(("subscribe", entry.name, why))
        for name, promised in list(self._advertised.get(client.name, {}).items()):
            if not rights.may_advertise(promised):
                self._unadvertise(client.name, name)
                error = PeerError("denied", f"no rule allows {client.name!r} to advertise this any more")
                denied.append(("advertise", name, error))
        self.report_denied(client)

    def report_denied(self, client: Peer) -> None:
        """Report ended requests to a client, now or when it is back: it does not repeat confirmed requests."""
        if client.is_up or not self._denied.get(client.name):
            for kind, name, error in self._denied.pop(client.name, ()):
                self._deny(client, kind, name, max(client.request, 0), error)

    def checks(self, client: str) -> bool:
        """Whether events of this client have to be compared with its advertisements; not if those allow everything."""
        return self._settings.must_advertise and _EVERYTHING not in self._advertised.get(client, {}).values()

    def require_advertised(self, client: str, attributes: Mapping[str, object]) -> None:
        """PeerError unless the client has advertised such events."""
        advertised = self._advertised.get(client, {}).values()
        if self._settings.must_advertise and not any(filter.matches(attributes) for filter in advertised):
            raise PeerError("not-advertised", f"the event is not what {client!r} has advertised: advertise it first")

    def matching_us(self, client: str) -> float:
        """The estimated cost of a client's filters for each event."""
        costs = self._costs.get(client, {})
        many = len(self._gossip.local.of(client)) + len(self._advertised.get(client, {}))
        return _CHEAP_US * (many - len(costs)) + sum(costs.values())

    def costliest(self) -> Iterator[str]:
        """Clients whose filters cost more than most: those with costly ones, and those with many."""
        return chain(reversed(self._costs), reversed(self._gossip.local.large))

    def _charge(self, client: str, kind: str, name: str, cost_us: float) -> None:
        """Note the cost of a filter, if it is a costly one."""
        self._refund(client, kind, name)
        if cost_us > _CHEAP_US:
            self._costs.setdefault(client, {})[kind, name] = cost_us
            self._costs_us += cost_us

    def _refund(self, client: str, kind: str, name: str) -> None:
        """Note that a filter has ended."""
        costs = self._costs.get(client)
        if costs is not None:
            self._costs_us -= costs.pop((kind, name), 0.0)
            if not costs:
                del self._costs[client]

    def _spend_budget(self, source: Peer, kind: str, name: str, wanted: Filter) -> None:
        """Note the cost of a filter; PeerError if it exceeds the budget."""
        cost_us = matching_us(wanted)
        before_us = self._costs.get(source.name, {}).get((kind, name), 0.0)
        if cost_us > max(before_us, _CHEAP_US):
            self._require_budget(source, cost_us, cost_us - before_us)
        self._charge(source.name, kind, name, cost_us)

    def _require_budget(self, source: Peer, cost_us: float, more_us: float) -> None:
        """PeerError if the filters of a client, or the costly ones of all clients, would cost too much for each
        event."""
        whole_us, most_us = self.matching_us(source.name) + more_us, source.budget.matching_us
        whose, limit = f"filters of {source.name!r}", "matching"
        if whole_us <= most_us:
            whole_us, most_us = self._costs_us + more_us, self._settings.max_matching_us
            whose, limit = "costly filters of all clients here", "matching_all"
        if whole_us > most_us:
            raise PeerError(
                "budget",
                f"the {whose} would cost about {whole_us:,.0f} us of processor time for each event, this one "
                f"{cost_us:,.0f}; the limit is {most_us:,.0f}: write simpler ones (=, <, IN; not LIKE or arithmetic), "
                f"or have the limit `{limit}` of the network raised",
            )

    def _subscribe(self, source: Peer, entry: wire.Entry) -> None:
        client = source.name
        mine = self._gossip.local.of(client)
        if is_reserved(entry.name):
            raise PeerError("name", f"the name {entry.name!r} of a subscription is reserved: take another")
        if len(client) + len(entry.name) >= wire.MAX_NAME:
            raise PeerError("name", f"the names of client and subscription together are over {wire.MAX_NAME} long")
        if entry.name not in mine and len(mine) >= self._settings.max_subscriptions:
            raise PeerError("too-many", f"{client!r} has {len(mine)} subscriptions, the limit: end some")
        self._gossip.require_room(client, entry)
        self._spend_budget(source, _SUBSCRIBED, entry.name, parsed(entry.filter))
        if not mine:
            self._gossip.local.came(client, self._now_ns())
            self._journal.store(f"came/{client}", str(self._now_ns()).encode())
        if self._gossip.local.put(client, entry):
            key = _key("subscription", client, entry.name)
            self._journal.store(key, msgspec.msgpack.encode((client, entry)))

    def _unsubscribe(self, client: str, name: str) -> None:
        if name in self._gossip.local.of(client):
            self._accounts.forget(client, (name,))
        if self._gossip.local.drop(client, name):
            self._refund(client, _SUBSCRIBED, name)
            self._journal.erase(_key("subscription", client, name), matters=True)
            if not self._gossip.local.of(client):
                self._journal.erase(f"came/{client}")

    def _advertise(self, source: Peer, name: str, text: str) -> None:
        client = source.name
        mine = self._advertised.setdefault(client, {})
        if name not in mine and len(mine) >= self._settings.max_advertisements:
            raise PeerError("too-many", f"{client!r} has {len(mine)} advertisements, the limit: end some")
        promised = _promised(text)
        self._spend_budget(source, _ADVERTISED, name, promised)
        mine[name] = promised
        self._journal.store(_key("advertisement", client, name), msgspec.msgpack.encode((client, name, text)))

    def _unadvertise(self, client: str, name: str) -> None:
        if self._advertised.get(client, {}).pop(name, None) is not None:
            self._refund(client, _ADVERTISED, name)
            self._journal.erase(_key("advertisement", client, name), matters=True)


def _promised(text: str) -> Filter:
    """The filter of an advertisement; one that allows everything is _EVERYTHING itself, which is found at once."""
    promised = parsed(text)
    return _EVERYTHING if promised == _EVERYTHING else promised


def _key(kind: str, client: str, name: str) -> str:
    """One key for each request. Names may contain anything, so the length shows where the first one ends."""
    return f"{kind}/{len(client)}/{client}/{name}"


def _require(is_allowed: bool, client: str, what: str) -> None:
    if not is_allowed:
        raise PeerError("denied", f"no rule allows {client!r} to {what} this: ask the operator of the network")
