"""The settings of a broker or a client: every bound of the protocol, with its name and its default.

| bound | at the bound |
| --- | --- |
| `max_frame_bytes` | a longer frame is refused |
| `max_lifetime_ns` | an event without a lifetime, or with a longer one, lives this long |
| `max_stored`, `max_stored_bytes` | no event is taken on: not acknowledged, credit 0, sent again (more: `_carrier`) |
| `max_parked_bytes` | an event that would wait for an unreachable broker is refused with the reason |
| `max_queued`, `max_queued_bytes` | the waiting event with the least expected benefit is dropped, counted and traced |
| `max_queued_client`, `budget` | the same for a client; `_budgets` says more |
| `max_seen` | the entry that expires first is forgotten, counted |
| `max_clients`, `max_subscriptions`, `max_advertisements` | one more is refused with the reason |
| `max_origins` | the subscriptions of one more broker are refused, counted |
| `max_entries` | one more subscription in the whole network is refused with the reason (`max_entries_elsewhere`) |
| `interest_bytes` | a longer table or change of subscriptions is split into several messages |
| `window`, `max_under_way_bytes`, the peer's credit | more events wait in the queue, where the strategy decides |
| `max_traces` | the traced publisher that was silent for longest is forgotten |
| `max_departures` | the client that moved away first is forgotten, counted |
| `max_unacknowledged` (client) | publishing is refused: the application has to wait |
| `max_leaving` (client) | a move is refused until a former home has confirmed that it forgot the client |
| `max_refused` | the connection is closed |
"""

from collections.abc import Mapping

import msgspec

from tidings.errors import ConfigurationError
from tidings.model.policies import (
    BUFFERING,
    BYPASSING,
    DEFAULT_RELOCATION,
    DEFAULT_SCHEME,
    DEFAULT_STRATEGY,
    Relocation,
    Scheme,
)
from tidings.placement import (
    DEFAULT_HYSTERESIS,
    DEFAULT_STAY_NS,
    DEFAULT_TRACED,
    DEFAULT_TRACED_PER_WINDOW,
    DEFAULT_WAIT_NS,
    DEFAULT_WINDOW_NS,
    Metric,
)
from tidings.protocol._budgets import Budget
from tidings.protocol.wire import MAX_CREDIT, MAX_FRAME_BYTES, MAX_TRACED
from tidings.scheduling import Strategy, strategy

__all__ = ["MS", "PART_HEAD_BYTES", "SECOND", "BrokerSettings", "ClientSettings", "Relocation"]

MS = 10**6
SECOND = 10**9
PART_HEAD_BYTES = 4_096
"""More than the rest of a message about subscriptions takes: two names and some numbers."""


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One broker. `neighbours` are the brokers it may have connections with; `graph` is the whole overlay as planned.

    The scheme is paper D's: `static` routes by `graph` and remembers subscriptions by their durable copies alone,
    `periodic` adds refresh, `buffer` also store, acknowledge and retransmit; `bypass` routes by link state.

    With `tracing` it notes what happens to a share `trace_sample` of the events, and has clients report which of these
    events their applications got. With `profiles`, to a share that may change (`Broker.record`). With `spans`, to those
    whose publisher asks for it (`_trace_context`), and to a share `span_sample` of those without a context.

    With two `copies` an event is acknowledged when a neighbour has it on disk too (`broker/_copies`).

    With a relocation this broker looks for better homes for its publishers and asks them to move (paper E; on-time
    placement is ours): after `relocation_events` traced events, for GRAPE by `relocation_metric` with
    `relocation_weight`, for POP tracing at most `relocation_per_window` events in `relocation_window_ns`. It waits
    `relocation_wait_ns` for answers. A move must gain more than `relocation_hysteresis`, and a client that has just
    come or been asked stays for `relocation_stay_ns`.
    """

    name: str
    neighbours: frozenset[str] = frozenset()
    graph: Mapping[str, frozenset[str]] = {}
    scheme: Scheme = DEFAULT_SCHEME
    strategy: Strategy = strategy(DEFAULT_STRATEGY)
    processing_s: float = 0.0
    covering: bool = False
    synchronised_clocks: bool = False
    must_advertise: bool = True
    tracing: bool = True
    trace_sample: float = 1.0
    profiles: bool = False
    spans: bool = False
    span_sample: float = 0.0

    copies: int = 1
    relocation: Relocation = DEFAULT_RELOCATION
    relocation_events: int = DEFAULT_TRACED
    relocation_metric: Metric = "load"
    relocation_weight: float = 100.0
    relocation_hysteresis: float = DEFAULT_HYSTERESIS
    relocation_window_ns: int = DEFAULT_WINDOW_NS
    relocation_per_window: int = DEFAULT_TRACED_PER_WINDOW
    relocation_wait_ns: int = DEFAULT_WAIT_NS
    relocation_stay_ns: int = DEFAULT_STAY_NS

    ping_ns: int = 1 * SECOND
    silence_ns: int = 3 * SECOND
    ping_client_ns: int = 5 * SECOND
    silence_client_ns: int = 12 * SECOND
    refresh_ns: int = 10 * SECOND
    timeout_ns: int = 35 * SECOND
    forget_ns: int = 7 * 86_400 * SECOND
    client_timeout_ns: int = 600 * SECOND
    ready_wait_ns: int = 3 * SECOND
    retry_least_ns: int = 200 * MS
    retry_most_ns: int = 2 * SECOND
    probe_ns: int = 1 * SECOND
    max_lifetime_ns: int = 600 * SECOND
    seen_grace_ns: int = 60 * SECOND
    read_at_once: int = 2_000
    read_pause_ns: int = 5 * MS

    window: int = 16
    max_frame_bytes: int = MAX_FRAME_BYTES
    interest_bytes: int = 65_536
    max_stored: int = 200_000
    max_stored_bytes: int = 2_000_000_000
    max_parked_bytes: int = 500_000_000
    max_queued: int = 65_536
    max_queued_bytes: int = 500_000_000
    max_under_way_bytes: int = 16_000_000
    max_queued_client: int = 10_000
    budget: Budget = Budget()
    """Of each client, unless it gets another when it is admitted."""
    max_matching_us: float = 10_000.0
    """The most that all costly filters of clients may cost together, for each event."""
    max_seen: int = 1_000_000
    max_clients: int = 10_000
    max_subscriptions: int = 10_000
    max_advertisements: int = 1_000
    max_departures: int = 10_000
    max_traces: int = 4_096
    max_origins: int = 4_096
    max_entries: int = 262_144
    max_hops: int = 64
    max_refused: int = 100

    def __post_init__(self) -> None:
        _require_positive(
            self, ("ping_ns", "refresh_ns", "retry_least_ns", "read_at_once", "window", "max_stored", "max_queued")
        )
        if self.silence_ns <= self.ping_ns or self.timeout_ns <= 2 * self.refresh_ns:
            raise ConfigurationError(
                f"broker {self.name!r}: silence_ns must be above ping_ns and timeout_ns above twice refresh_ns, or "
                "every delay looks like a failure"
            )
        if self.forget_ns < self.timeout_ns:
            raise ConfigurationError(
                f"broker {self.name!r}: forget_ns is {self.forget_ns}, but must be timeout_ns ({self.timeout_ns}) at "
                "least: subscriptions are kept for longer than the broker's last sign of life"
            )
        if self.window > MAX_CREDIT:
            raise ConfigurationError(f"broker {self.name!r}: window is {self.window}, at most {MAX_CREDIT} is possible")
        if self.copies not in (1, 2) or (self.copies == 2 and not self.buffers):
            raise ConfigurationError(
                f"broker {self.name!r}: {self.copies} copies with {self.scheme!r}; 1 is allowed, or 2 with buffers"
            )
        if self.relocation != "off" and not (self.buffers and 0 < self.relocation_events <= MAX_TRACED):
            raise ConfigurationError(
                f"broker {self.name!r}: relocation {self.relocation!r} needs a scheme with buffers and from 1 to "
                f"{MAX_TRACED} relocation_events, not {self.scheme!r} and {self.relocation_events}"
            )
        if not 0.0 <= self.relocation_hysteresis < 1.0 or self.relocation_stay_ns < 0:
            raise ConfigurationError(
                f"broker {self.name!r}: relocation_hysteresis is a share from 0 to below 1, not "
                f"{self.relocation_hysteresis:g}, and relocation_stay_ns 0 or more, not {self.relocation_stay_ns}"
            )
        if not self.bypasses and self.neighbours and not self.graph:
            raise ConfigurationError(
                f"broker {self.name!r}: scheme {self.scheme!r} routes by the planned overlay: give it as `graph`"
            )

    @property
    def max_entries_elsewhere(self) -> int:
        """How many subscriptions at other brokers a broker knows; more are refused, counted.

        Somewhat more than `max_entries`: brokers that accept one each at the same time have not heard of each other's.
        """
        return self.max_entries + self.max_entries // 16

    @property
    def max_entry_bytes(self) -> int:
        """The longest subscription that can be announced to neighbours."""
        return self.max_frame_bytes - PART_HEAD_BYTES

    @property
    def part_bytes(self) -> int:
        """How much of a table of subscriptions fits into one message, unless one alone is longer."""
        return min(self.interest_bytes, self.max_entry_bytes)

    @property
    def buffers(self) -> bool:
        """Whether events are stored, acknowledged and sent again."""
        return self.scheme in BUFFERING

    @property
    def bypasses(self) -> bool:
        """Whether routes follow the link state instead of the plan."""
        return self.scheme in BYPASSING

    @property
    def refreshes(self) -> bool:
        """Whether subscriptions are refreshed, and time out if they are not."""
        return self.scheme != "static"


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One client.

    A move that has not reached the new home within `move_ns` is called off; events that the old home has not
    acknowledged within `handover_ns` are taken over by the new one. `may_be_moved`: whether brokers may ask for moves.
    When its home has not been heard for `failover_ns`, the client moves to another broker; 0: it waits for its home.
    Acknowledgements leave `ack_wait_ns` apart, or when there are `ack_many` events to acknowledge. For `settle_ns` from
    its first greeting on, events of subscriptions of an earlier incarnation wait unacknowledged: this incarnation may
    be about to make the same subscriptions.
    """

    name: str
    epoch: int = 1
    synchronised_clocks: bool = False

    greet_ns: int = 1 * SECOND
    silence_ns: int = 12 * SECOND
    retry_least_ns: int = 200 * MS
    retry_most_ns: int = 2 * SECOND
    max_lifetime_ns: int = 600 * SECOND
    seen_grace_ns: int = 60 * SECOND
    move_ns: int = 10 * SECOND
    handover_ns: int = 1 * SECOND
    failover_ns: int = 5 * SECOND
    settle_ns: int = 10 * SECOND
    may_be_moved: bool = True

    ack_many: int = 64
    ack_wait_ns: int = 25 * MS

    window: int = 64
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_unacknowledged: int = 1_024
    max_leaving: int = 8
    max_seen: int = 100_000
    max_refused: int = 100

    def __post_init__(self) -> None:
        _require_positive(self, ("greet_ns", "retry_least_ns", "window", "max_unacknowledged", "max_seen"))


def _require_positive(settings: BrokerSettings | ClientSettings, fields: tuple[str, ...]) -> None:
    for field in fields:
        if getattr(settings, field) < 1:
            raise ConfigurationError(f"{settings.name!r}: {field} is {getattr(settings, field)}, but must be positive")
