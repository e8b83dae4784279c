"""What the simulator drew for a scenario and what became of it, for others to go through the same: publications,
failures, arrivals.

Storms and rehearsals run the same scenario on the real protocol. They meet the same events and the same outages, so
what differs is what the protocol does, and no noise of the draws.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tidings.model.scenario import Network
from tidings.simulation._layout import NEVER_NS, Array
from tidings.simulation._options import Options
from tidings.simulation._plan import SimulationPlan, plan
from tidings.simulation._publications import Chunk
from tidings.simulation._result import Result
from tidings.simulation._run import run_through

__all__ = ["Script", "ScriptedEvent", "simulate_script"]


class ScriptedEvent(NamedTuple):
    """One publication: publisher and subscriptions by number, `lifetime_ns` None for one without a deadline."""

    at_ns: int
    publisher: int
    lifetime_ns: int | None
    size_bytes: int
    matches: tuple[int, ...]
    attributes: dict[str, int | float | str | bool]


class Script:
    """Takes down a run of the simulator while it happens; `transitions` are (time, component, whether it is up).

    `delays_ns` says how long a publication took until the application of a subscription had it, both by number: what
    a receiver held to restore order is in it.
    """

    def __init__(self, planned: SimulationPlan) -> None:
        self.network = planned.written
        self._brokers = len(self.network.topology.brokers)
        self._access_brokers = len(planned.network.topology.brokers) - self._brokers
        self.publications: list[ScriptedEvent] = []
        self.transitions: list[tuple[int, int, bool]] = []
        self.delays_ns: dict[tuple[int, int], int] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def allowed_ns(self, publication: int, subscription: int) -> int:
        """The tighter of the two deadlines; NEVER_NS if there is none."""
        lifetime_ns = self.publications[publication].lifetime_ns
        max_delay_s = self.network.subscriptions[subscription].max_delay_s
        allowed_ns = NEVER_NS if lifetime_ns is None else lifetime_ns
        return allowed_ns if max_delay_s is None else min(allowed_ns, round(max_delay_s * 1e9))

    def counted(self) -> list[tuple[int, int]]:
        """The pairs of a publication after the warm-up and a subscription that it matches, in the order of time."""
        warmup_ns = self.network.warmup_s * 1e9
        return [
            (number, subscription)
            for number, publication in enumerate(self.publications)
            if publication.at_ns >= warmup_ns
            for subscription in publication.matches
        ]

    def write_publications(self, chunk: Chunk) -> None:
        """The events of a chunk."""
        rows = [{}] * len(chunk.events) if chunk.attributes is None else chunk.attributes.to_pylist()
        for event, attributes in zip(chunk.events, rows, strict=True):
            first, count = int(event["first"]), int(event["count"])
            lifetime_ns = int(event["lifetime"])
            self._numbers[int(event["publisher"]), int(event["sequence"])] = len(self.publications)
            self.publications.append(
                ScriptedEvent(
                    at_ns=int(event["time"]),
                    publisher=int(event["publisher"]),
                    lifetime_ns=None if lifetime_ns >= NEVER_NS else lifetime_ns,
                    size_bytes=round(float(event["size_kb"]) * 1_000),
                    matches=tuple(chunk.matches[first : first + count].tolist()),
                    attributes={name: value for name, value in attributes.items() if value is not None},
                )
            )

    def write_hops(self, rows: Array) -> None:
        """The paths of the simulator's events are their own affair."""

    def write_deliveries(self, rows: Array, delivered_ns: Array | None = None) -> None:
        """What applications got, by default as it arrived; of several copies the first counts."""
        columns = (rows[name].tolist() for name in ("publisher", "sequence", "subscription"))
        times_ns = (rows["arrived"] if delivered_ns is None else delivered_ns).tolist()
        for publisher, sequence, subscription, at_ns in zip(*columns, times_ns, strict=True):
            number = self._numbers[publisher, sequence]
            self.delays_ns.setdefault((number, subscription), at_ns - self.publications[number].at_ns)

    def write_transitions(self, rows: Array) -> None:
        """What failed or came back; the brokers of access links never do, but are numbered before links."""
        self.transitions += [
            (at_ns, component - self._access_brokers * (component >= self._brokers), up != 0)
            for at_ns, component, up in zip(*(rows[name].tolist() for name in ("at", "component", "up")), strict=True)
        ]

    def reached(self, now_ns: int, events: Array) -> None:
        """Nothing is to be done."""

    def on_time(self) -> Array:
        """Which of the counted pairs arrived in time."""
        return self.judged(self.delays_ns)

    def judged(self, delays_ns: Mapping[tuple[int, int], int]) -> Array:
        """Which of the counted pairs were on time, strictly before the deadline, with these delays."""
        never = NEVER_NS + 1
        return np.array([delays_ns.get(pair, never) < self.allowed_ns(*pair) for pair in self.counted()], np.bool_)


def simulate_script(network: Network) -> tuple[Script, Result]:
    """Simulate a network and take down what happened; the network is small enough for all of it to be kept."""
    options = Options()
    planned = plan(network, options)
    script = Script(planned)
    return script, run_through(planned, options, script)
