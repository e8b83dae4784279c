"""The sections and keys of `network.toml` (docs/reference/live.md).

Quantities are written with their unit (`"5 s"`, `"1 MB"`); the attribute carries the base unit (`drain_s`, `frame_kb`).
Paths are relative to the file; `{name}` in one stands for the broker's name.
"""

import urllib.parse
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, field

from tidings.live.configuration._address import Address
from tidings.model.documents import Place, Quantity
from tidings.model.policies import (
    DEFAULT_RELOCATION,
    DEFAULT_SCHEME,
    DEFAULT_STRATEGY,
    RELOCATION_HYSTERESIS,
    RELOCATION_STAY_S,
    Relocation,
    Scheme,
)
from tidings.placement import DEFAULT_TRACED
from tidings.protocol import OLDEST_VERSION, VERSION
from tidings.protocol.node import REQUESTS_SHARE
from tidings.protocol.wire import MAX_TRACED

__all__ = [
    "Address",
    "BridgeWritten",
    "BrokerWritten",
    "BudgetWritten",
    "Document",
    "Limits",
    "NetworkWritten",
    "ProfilesWritten",
    "RelocationWritten",
    "RuleWritten",
    "TlsWritten",
    "TokenWritten",
]

Seconds = Annotated[float, Quantity("time")]
Kilobytes = Annotated[float, Quantity("size")]
PerSecond = Annotated[float, Quantity("rate")]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Text = Annotated[str, Meta(min_length=1)]


class AddressWritten:
    """Marker of a field that is written as host:port."""

    def prepare(self, raw: Any, place: Place) -> Any:
        """The address, for msgspec to convert."""
        if not isinstance(raw, str):
            place.fail(f'expected an address, got {raw!r}; write it like "127.0.0.1:7001"')
        try:
            return msgspec.to_builtins(Address.parse(raw))
        except ValueError as error:
            place.fail(str(error))


Where = Annotated[Address, AddressWritten()]


class UrlWritten:
    """Marker of a field that is written as http://host:port, with a path if wanted."""

    def prepare(self, raw: Any, place: Place) -> Any:
        """The same, if it is valid."""
        try:
            found = urllib.parse.urlsplit(raw) if isinstance(raw, str) else None
            is_valid = (
                found is not None
                and found.scheme in ("http", "https")
                and bool(found.hostname)
                and found.port != 0
                and not (found.query or found.fragment or found.username)
            )
        except ValueError:
            is_valid = False
        if not is_valid:
            place.fail(f'{raw!r} is not the address of a collector; write it like "http://127.0.0.1:4318"')
        return raw


Url = Annotated[str, UrlWritten()]


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class NetworkWritten(_Written, frozen=True, kw_only=True):
    """Settings of all brokers."""

    scheme: Scheme = DEFAULT_SCHEME
    strategy: str = DEFAULT_STRATEGY
    r: float | None = None
    relocation: Relocation = DEFAULT_RELOCATION
    copies: Annotated[int, Meta(ge=1, le=2)] = 1
    store: Text = "store"
    store_size_kb: Kilobytes = field(name="store_size", default=8e6)
    public: bool = False
    must_advertise: bool = True
    covering: bool = False
    synchronised_clocks: bool = False
    drain_s: Seconds = field(name="drain", default=5.0)
    ping_s: Seconds = field(name="ping", default=1.0)
    silence_s: Seconds = field(name="silence", default=3.0)
    refresh_s: Seconds = field(name="refresh", default=10.0)
    timeout_s: Seconds = field(name="timeout", default=35.0)
    forget_s: Seconds = field(name="forget", default=7 * 86_400.0)
    broker_token_file: Text | None = None
    wire_version: Annotated[int, Meta(ge=OLDEST_VERSION, le=VERSION)] = VERSION


class RelocationWritten(_Written, frozen=True, kw_only=True):
    """When a publisher is asked to move: after this many events, for more than this gain, not soon after it arrived."""

    events: Annotated[int, Meta(ge=1, le=MAX_TRACED)] = DEFAULT_TRACED
    hysteresis: Annotated[float, Meta(ge=0.0, lt=1.0)] = RELOCATION_HYSTERESIS
    stay_s: Seconds = field(name="stay", default=RELOCATION_STAY_S)


class Limits(_Written, frozen=True, kw_only=True):
    """The bounds of each broker, and of each of its connections."""

    frame_kb: Kilobytes = field(name="frame", default=1_048.576)
    unsent_kb: Kilobytes = field(name="unsent", default=8_000.0)
    send_buffer_kb: Kilobytes = field(name="send_buffer", default=256.0)
    lifetime_s: Seconds = field(name="lifetime", default=600.0)
    away_s: Seconds = field(name="away", default=600.0)
    rate_per_s: PerSecond | None = field(name="rate", default=None)
    traffic_kb_per_s: Kilobytes | None = field(name="traffic", default=None)
    matching_s: Seconds = field(name="matching", default=0.0005)
    matching_all_s: Seconds = field(name="matching_all", default=0.01)
    reading: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.1
    requests: Annotated[float, Meta(gt=0.0, le=1.0)] = REQUESTS_SHARE
    connections: Count = 20_000
    clients: Count = 10_000
    subscriptions: Count = 10_000
    advertisements: Count = 1_000
    network_subscriptions: Count = 262_144
    window: Annotated[int, Meta(ge=1, le=65_536)] = 256
    stored: Count = 200_000
    stored_size_kb: Kilobytes = field(name="stored_size", default=2e6)
    parked_kb: Kilobytes = field(name="parked", default=500_000.0)
    queued: Count = 65_536
    queued_size_kb: Kilobytes = field(name="queued_size", default=500_000.0)
    queued_client: Count = 10_000
    queued_client_size_kb: Kilobytes = field(name="queued_client_size", default=64_000.0)
    under_way_size_kb: Kilobytes = field(name="under_way_size", default=16_000.0)
    seen: Count = 1_000_000


class BudgetWritten(_Written, frozen=True, kw_only=True):
    """The budget of each client of an identity; missing values are those of [limits]."""

    identity: Name
    rate_per_s: PerSecond | None = field(name="rate", default=None)
    traffic_kb_per_s: Kilobytes | None = field(name="traffic", default=None)
    matching_s: Seconds | None = field(name="matching", default=None)
    reading: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    queued_client_size_kb: Kilobytes | None = field(name="queued_client_size", default=None)
    EXAMPLES: ClassVar = {"identity": 'identity = "desk-*"'}


class TlsWritten(_Written, frozen=True, kw_only=True):
    """Certificates: every broker has one with its name in it, and so have clients if `client_certificates`; `revoked`
    lists those that the authority has revoked."""

    certificate: Text
    key: Text
    authority: Text
    client_certificates: bool = False
    revoked: Text | None = None
    EXAMPLES: ClassVar = {
        "certificate": 'certificate = "certificates/{name}.pem"',
        "key": 'key = "certificates/{name}.key"',
        "authority": 'authority = "certificates/authority.pem"',
    }


class TokenWritten(_Written, frozen=True, kw_only=True):
    """The secret of an identity: a client that has it may use a matching name (`*` stands for any characters)."""

    identity: Name
    token: Text | None = None
    token_file: Text | None = None
    EXAMPLES: ClassVar = {"identity": 'identity = "desk-1"'}


class RuleWritten(_Written, frozen=True, kw_only=True):
    """What an identity may do: everything (true), nothing (false), or what satisfies a filter; and the highest price of
    its subscriptions, the longest lifetime of its events, and the highest rate at which it may send."""

    identity: Name
    publish: bool | str = False
    advertise: bool | str | None = None
    subscribe: bool | str = False
    price: Annotated[float, Meta(ge=0.0)] | None = None
    lifetime_s: Seconds | None = field(name="lifetime", default=None)
    rate_per_s: PerSecond | None = field(name="rate", default=None)
    EXAMPLES: ClassVar = {"identity": 'identity = "desk-*"'}


class BridgeWritten(_Written, frozen=True, kw_only=True):
    """A bridge between a broker with an MQTT door and another MQTT broker: topic filters in and out, at QoS 0 or 1; a
    message without expiry interval lives for `lifetime`."""

    name: Name
    broker: Name
    address: Where
    topics_in: tuple[Text, ...] = field(name="in", default=())
    topics_out: tuple[Text, ...] = field(name="out", default=())
    qos: Annotated[int, Meta(ge=0, le=1)] = 1
    lifetime_s: Seconds | None = field(name="lifetime", default=None)
    username: Text | None = None
    password_file: Text | None = None
    EXAMPLES: ClassVar = {
        "name": 'name = "plant"',
        "broker": 'broker = "b1"',
        "address": 'address = "10.0.0.5:1883"',
    }


class TraceWritten(_Written, frozen=True, kw_only=True):
    """Traces as Parquet files: of this share of the events, a new file at this size or age. Spans for a collector of
    OpenTelemetry: of the events whose publisher asks for it, and of a share of those without a trace context."""

    directory: Text | None = None
    sample: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    roll_rows: Count = 100_000
    roll_age_s: Seconds = field(name="roll_age", default=10.0)
    otlp: Url | None = None
    otlp_sample: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0


class ProfilesWritten(_Written, frozen=True, kw_only=True):
    """What each broker keeps in memory for `tidings profile`: rows of its last events, over this time, in these
    bytes."""

    record: bool = True
    window_s: Seconds = field(name="window", default=300.0)
    size_kb: Kilobytes = field(name="size", default=4_000.0)


class BrokerWritten(_Written, frozen=True, kw_only=True):
    """One broker: where it listens, its neighbours, and where others reach it if that differs."""

    name: Name
    listen: Where
    address: Where | None = None
    metrics: Where | None = None
    mqtt: Where | None = None
    mqtt_tls: Where | None = None
    mqtt_ws: Where | None = None
    mqtt_json: tuple[Text, ...] = ()
    neighbours: tuple[Name, ...] = ()
    EXAMPLES: ClassVar = {"name": 'name = "b1"', "listen": 'listen = "127.0.0.1:7001"'}

    @property
    def reached_at(self) -> Address:
        """The address that other brokers use."""
        return self.address or self.listen

    def reached_by(self, key: str) -> Address | None:
        """The address that MQTT clients use, by its key; a door at all addresses is at the one that brokers use."""
        door: Address | None = getattr(self, key)
        is_everywhere = door is not None and door.host in ("0.0.0.0", "::")
        return Address(self.reached_at.host, door.port) if door is not None and is_everywhere else door

    @property
    def has_mqtt(self) -> bool:
        """Whether MQTT clients can connect."""
        return any(each is not None for each in (self.mqtt, self.mqtt_tls, self.mqtt_ws))


class Document(_Written, frozen=True, kw_only=True):
    """The whole file."""

    broker: Annotated[tuple[BrokerWritten, ...], Meta(min_length=1)]
    network: NetworkWritten = NetworkWritten()
    relocation: RelocationWritten = RelocationWritten()
    limits: Limits = Limits()
    tls: TlsWritten | None = None
    trace: TraceWritten | None = None
    profiles: ProfilesWritten = ProfilesWritten()
    token: tuple[TokenWritten, ...] = ()
    rule: tuple[RuleWritten, ...] = ()
    budget: tuple[BudgetWritten, ...] = ()
    bridge: tuple[BridgeWritten, ...] = ()
    EXAMPLES: ClassVar = {"broker": '[[broker]] with name = "b1" and listen = "127.0.0.1:7001"'}
