"""`network.toml`, read strictly: every error names the file, the line, the key and the remedy.

A link works in both directions: it is enough that one of two brokers names the other. The broker whose name sorts first
opens the connection, so there is only one.
"""

import ipaddress
import socket
from pathlib import Path

import msgspec

from tidings.errors import ConfigurationError, FilterError, ScenarioError
from tidings.live.configuration import _schema as written
from tidings.live.configuration._schema import Address
from tidings.live.security._secrets import LEAST_CHARACTERS, kept_secret, read_secret
from tidings.model.documents import Place, Source, decode, suggestion
from tidings.model.filters import Filter
from tidings.protocol import BrokerSettings, Budget
from tidings.protocol.node import Rule, Token
from tidings.scheduling import strategy

__all__ = ["Address", "Network", "Rule", "Tls", "Token", "is_loopback", "read_network"]

_SECOND_NS = 10**9
_SCENARIO = frozenset({"topology", "publishers", "subscribers"})
_FRAME_BYTES_LEAST = 81_920
"""The longest filter, in characters of four bytes, and the rest of its frame."""
_WINDOW_KB_LEAST, _WINDOW_S_LEAST = 500.0, 10.0
_TOKEN_FILE = "brokers.token"


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one broker's certificate."""

    certificate: Path
    key: Path
    authority: Path
    client_certificates: bool
    revoked: Path | None = None


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """A network as its file describes it."""

    path: Path
    document: written.Document
    links: dict[str, frozenset[str]]
    tokens: tuple[Token, ...]
    rules: tuple[Rule, ...]
    broker_token: str | None
    """The token from the file with which brokers prove themselves to each other where there is no TLS."""

    @property
    def is_token_implied(self) -> bool:
        """Whether brokers prove themselves by a token that they make: they are all on this machine, and the file has
        none."""
        return self.broker_token is None and self.document.tls is None

    def shared_token(self, *, is_made: bool = True) -> str | None:
        """The token that brokers share, if any; `is_made`: create it beside their stores if it is missing."""
        if not self.is_token_implied or not (is_made or self.implied_token_file.exists()):
            return self.broker_token
        return kept_secret(self.implied_token_file)

    @property
    def implied_token_file(self) -> Path:
        """The file of the token that brokers make themselves."""
        return self.path.parent / self.document.network.store / _TOKEN_FILE

    @property
    def brokers(self) -> dict[str, written.BrokerWritten]:
        """The brokers by name."""
        return {broker.name: broker for broker in self.document.broker}

    def broker(self, name: str) -> written.BrokerWritten:
        """The broker of this name."""
        if name not in self.brokers:
            hint = suggestion(name, self.brokers, otherwise="there are:")
            raise ConfigurationError(f"{self.path}: there is no broker {name!r}; {hint}")
        return self.brokers[name]

    def store_of(self, name: str) -> Path:
        """The directory of a broker's durable store."""
        return self.path.parent / self.document.network.store / name

    def tls_of(self, name: str) -> Tls | None:
        """A broker's certificate, if the network has any."""
        tls = self.document.tls
        if tls is None:
            return None
        here = self.path.parent
        return Tls(
            certificate=here / tls.certificate.replace("{name}", name),
            key=here / tls.key.replace("{name}", name),
            authority=here / tls.authority.replace("{name}", name),
            client_certificates=tls.client_certificates,
            revoked=None if tls.revoked is None else here / tls.revoked,
        )

    @property
    def budget(self) -> Budget:
        """The budget of each client that has none of its own."""
        return _budget(self.document.limits)

    @property
    def budgets(self) -> tuple[tuple[str, Budget], ...]:
        """By identity, the budget of its clients."""
        limits = self.document.limits
        return tuple((entry.identity, _budget(_merged(limits, entry))) for entry in self.document.budget)

    def unknown_hosts(self) -> list[str]:
        """A sentence for each broker whose host has no address.

        That is no error of the file: a broker starts without its neighbours, and dials them by name until they answer.
        """
        found = []
        for name, broker in self.brokers.items():
            address = broker.reached_at
            try:
                socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            except OSError as error:
                found.append(f"the host of broker {name!r}, {address}, cannot be resolved: {error.strerror or error}")
        return found

    def settings_of(self, name: str) -> BrokerSettings:
        """The settings of a broker's machine."""
        general, limits, moving = self.document.network, self.document.limits, self.document.relocation
        trace = self.document.trace
        return BrokerSettings(
            name=name,
            neighbours=self.links[name],
            graph=self.links,
            scheme=general.scheme,
            strategy=strategy(general.strategy, r=general.r),
            relocation=general.relocation,
            copies=general.copies,
            relocation_events=moving.events,
            relocation_hysteresis=moving.hysteresis,
            relocation_stay_ns=round(moving.stay_s * _SECOND_NS),
            covering=general.covering,
            synchronised_clocks=general.synchronised_clocks,
            must_advertise=general.must_advertise,
            tracing=trace is not None and trace.directory is not None,
            trace_sample=1.0 if trace is None else trace.sample,
            profiles=self.document.profiles.record,
            spans=trace is not None and trace.otlp is not None,
            span_sample=0.0 if trace is None else trace.otlp_sample,
            ping_ns=round(general.ping_s * _SECOND_NS),
            silence_ns=round(general.silence_s * _SECOND_NS),
            refresh_ns=round(general.refresh_s * _SECOND_NS),
            timeout_ns=round(general.timeout_s * _SECOND_NS),
            forget_ns=round(general.forget_s * _SECOND_NS),
            client_timeout_ns=round(limits.away_s * _SECOND_NS),
            max_lifetime_ns=round(limits.lifetime_s * _SECOND_NS),
            window=limits.window,
            max_frame_bytes=round(limits.frame_kb * 1000),
            max_stored=limits.stored,
            max_stored_bytes=round(limits.stored_size_kb * 1000),
            max_parked_bytes=round(limits.parked_kb * 1000),
            max_queued=limits.queued,
            max_queued_bytes=round(limits.queued_size_kb * 1000),
            max_queued_client=limits.queued_client,
            max_under_way_bytes=round(limits.under_way_size_kb * 1000),
            budget=self.budget,
            max_matching_us=limits.matching_all_s * 1e6,
            max_seen=limits.seen,
            max_clients=limits.clients,
            max_subscriptions=limits.subscriptions,
            max_advertisements=limits.advertisements,
            max_entries=limits.network_subscriptions,
        )


def _merged(limits: written.Limits, entry: written.BudgetWritten) -> written.Limits:
    """The limits, with those of an identity in their place."""
    given = {name: value for name, value in msgspec.structs.asdict(entry).items() if value is not None}
    given.pop("identity")
    return msgspec.structs.replace(limits, **given)


def _budget(limits: written.Limits) -> Budget:
    per_s = limits.traffic_kb_per_s
    return Budget(
        queued_bytes=round(limits.queued_client_size_kb * 1000),
        matching_us=limits.matching_s * 1e6,
        rate_per_s=limits.rate_per_s,
        bytes_per_s=None if per_s is None else per_s * 1000,
        reading_share=limits.reading,
    )


def read_network(path: Path) -> Network:
    """The network that a file describes; ConfigurationError at the key that is wrong."""
    try:
        source = Source(path.read_bytes().decode("utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"{path}: cannot be read: {why}; give the path of a network in TOML") from None
    try:
        place = source.root
        if _SCENARIO & source.table().keys():
            raise ConfigurationError(
                f"{path}: this is a scenario, which `tidings simulate` and `tidings predict` take; a network of live "
                "brokers has a table [[broker]] for each (examples/live/network.toml)"
            )
        document = decode(source.table(), written.Document, place)
        network = Network(
            path=path,
            document=document,
            links=_links(document, place),
            tokens=tuple(_token(path.parent, entry, place / "token" / n) for n, entry in enumerate(document.token)),
            rules=tuple(_rule(entry, place / "rule" / n) for n, entry in enumerate(document.rule)),
            broker_token=_broker_token(path.parent, document, place),
        )
        _check_addresses(document, place)
        _check_bridges(document, place)
        _check_secrets(document, place)
        _check_settings(network, place)
    except ScenarioError as error:
        raise ConfigurationError(str(error)) from None
    return network


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _links(document: written.Document, place: Place) -> dict[str, frozenset[str]]:
    links: dict[str, set[str]] = {}
    for number, broker in enumerate(document.broker):
        if broker.name in links:
            (place / "broker" / number / "name").fail(f"broker {broker.name!r} is given twice; names must be unique")
        links[broker.name] = set()
    for number, broker in enumerate(document.broker):
        for position, other in enumerate(broker.neighbours):
            here = place / "broker" / number / "neighbours" / position
            if other not in links:
                here.fail(f"there is no broker {other!r}; {suggestion(other, links, otherwise='there are:')}")
            if other == broker.name:
                here.fail(f"a link from {other!r} to itself; a link joins two different brokers")
            links[broker.name].add(other)
            links[other].add(broker.name)
    return {name: frozenset(others) for name, others in links.items()}


def _check_addresses(document: written.Document, place: Place) -> None:
    taken: dict[tuple[str, str], str] = {}
    for number, broker in enumerate(document.broker):
        # Brokers that others reach at different hosts are on different machines, which all have the same ports.
        host = broker.reached_at.host
        machine = "" if is_loopback(host) else host
        for key in ("listen", "metrics", "mqtt", "mqtt_tls", "mqtt_ws"):
            address: Address | None = getattr(broker, key)
            if address is None:
                continue
            here = place / "broker" / number / key
            if key == "mqtt_tls" and document.tls is None:
                here.fail("MQTT over TLS needs certificates: give [tls], or use mqtt")
            if (machine, str(address)) in taken:
                here.fail(f"{address} is already where {taken[machine, str(address)]} listens; give another port")
            taken[machine, str(address)] = f"{key} of {broker.name!r}"
            if not is_loopback(address.host) and not document.network.public:
                here.fail(
                    f"{address} can be reached from other machines; if that is intended, write public = true under "
                    "[network], and consider [tls]"
                )


def _check_bridges(document: written.Document, place: Place) -> None:
    doors = {broker.name for broker in document.broker if broker.has_mqtt}
    names = set()
    for number, bridge in enumerate(document.bridge):
        here = place / "bridge" / number
        if bridge.name in names:
            (here / "name").fail(f"bridge {bridge.name!r} is given twice; names must be unique")
        names.add(bridge.name)
        if bridge.broker not in doors:
            (here / "broker").fail(
                f"broker {bridge.broker!r} has no MQTT door; give it `mqtt`, or name one of: "
                f"{', '.join(sorted(doors)) or 'there are none'}"
            )
        if not bridge.topics_in and not bridge.topics_out:
            here.fail(f"bridge {bridge.name!r} has neither `in` nor `out`: give topic filters")


def _check_secrets(document: written.Document, place: Place) -> None:
    knows_brokers = document.tls is not None or document.network.broker_token_file is not None
    knows_clients = bool(document.token) or (document.tls is not None and document.tls.client_certificates)
    if document.network.public and not knows_brokers and len(document.broker) > 1:
        (place / "network" / "public").fail(
            "other machines reach the brokers, and anybody there could pose as one of them: give [tls], or a "
            "broker_token_file that all brokers read (`tidings token new --file FILE`)"
        )
    if document.network.public and not knows_clients:
        (place / "network" / "public").fail(
            "other machines reach the brokers, and anybody there could pose as a client: give [[token]] entries "
            "(`tidings token new`), or [tls] with client_certificates = true"
        )
    if document.rule and not knows_clients:
        (place / "rule" / 0).fail(
            "rules need to know who a client is: give [[token]] entries, or [tls] with client_certificates = true"
        )


def _check_settings(network: Network, place: Place) -> None:
    frame_bytes = round(network.document.limits.frame_kb * 1000)
    most_bytes = BrokerSettings(name="any").max_frame_bytes
    if not _FRAME_BYTES_LEAST <= frame_bytes <= most_bytes:
        (place / "limits" / "frame").fail(f"a frame of {frame_bytes} bytes: from {_FRAME_BYTES_LEAST} to {most_bytes}")
    size_kb, window_s = network.document.profiles.size_kb, network.document.profiles.window_s
    if size_kb < _WINDOW_KB_LEAST:
        (place / "profiles" / "size").fail(
            f"{size_kb:g} kB are too few for a window: give {_WINDOW_KB_LEAST:g} kB or more, or record = false"
        )
    if window_s < _WINDOW_S_LEAST:
        (place / "profiles" / "window").fail(
            f"{window_s:g} s are too short for a window: give {_WINDOW_S_LEAST:g} s or more, or record = false"
        )
    forget_s, lifetime_s = network.document.network.forget_s, network.document.limits.lifetime_s
    if forget_s < lifetime_s:
        (place / "network" / "forget").fail(
            f"subscriptions at a broker that is away are kept for {forget_s:g} s, but events live for up to "
            f"{lifetime_s:g} s ([limits] lifetime): make it at least that long"
        )
    trace = network.document.trace
    if trace is not None and trace.directory is None and trace.otlp is None:
        (place / "trace").fail(
            'neither `directory` nor `otlp` is given: write directory = "trace" for files, or '
            'otlp = "http://127.0.0.1:4318" for spans'
        )
    alone = [name for name, neighbours in network.links.items() if not neighbours]
    if network.document.network.copies > 1 and alone:
        (place / "network" / "copies").fail(
            f"broker {alone[0]!r} has no neighbour to keep second copies: give it one, or leave copies out"
        )
    try:
        for name in network.brokers:
            network.settings_of(name)
    except ScenarioError:
        raise
    except ConfigurationError as error:
        (place / "network").fail(str(error))


def _rule(entry: written.RuleWritten, place: Place) -> Rule:
    advertise = entry.publish if entry.advertise is None else entry.advertise
    return Rule(
        identity=entry.identity,
        publish=_allowed(entry.publish, place / "publish"),
        advertise=_allowed(advertise, place / "advertise"),
        subscribe=_allowed(entry.subscribe, place / "subscribe"),
        max_price=entry.price,
        max_lifetime_ns=None if entry.lifetime_s is None else round(entry.lifetime_s * _SECOND_NS),
        rate_per_s=entry.rate_per_s,
    )


def _allowed(entry: bool | str, place: Place) -> Filter | bool:
    if isinstance(entry, bool):
        return entry
    try:
        return Filter.parse(entry)
    except FilterError as error:
        place.fail(f"not a filter: {error}")


def _token(directory: Path, entry: written.TokenWritten, place: Place) -> Token:
    if (entry.token is None) == (entry.token_file is None):
        place.fail(f"give the token of {entry.identity!r} either as `token` or as `token_file`")
    if entry.token is None:
        return Token(identity=entry.identity, secret=_secret(directory / str(entry.token_file), place / "token_file"))
    return Token(identity=entry.identity, secret=_long_enough(entry.token, place / "token"))


def _broker_token(directory: Path, document: written.Document, place: Place) -> str | None:
    file = document.network.broker_token_file
    return None if file is None else _secret(directory / file, place / "network" / "broker_token_file")


def _secret(path: Path, place: Place) -> str:
    try:
        secret = read_secret(path)
    except ConfigurationError as error:
        place.fail(str(error))
    return _long_enough(secret, place)


def _long_enough(token: str, place: Place) -> str:
    if len(token) < LEAST_CHARACTERS:
        place.fail(
            f"a token of {len(token)} characters can be guessed: use at least {LEAST_CHARACTERS}, or one of "
            "`tidings token new`"
        )
    return token
