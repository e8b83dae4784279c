"""What the simulator drew for a scenario, kept for the protocol to go through: publications and failures."""

from typing import NamedTuple

from tidings.model.scenario import Network
from tidings.simulation._layout import NEVER_NS, Array
from tidings.simulation._publications import Chunk

__all__ = ["Script", "ScriptedEvent"]


class ScriptedEvent(NamedTuple):
    """One publication: publisher and subscriptions by number, `lifetime_ns` None for one without a deadline."""

    at_ns: int
    publisher: int
    lifetime_ns: int | None
    size_bytes: int
    matches: tuple[int, ...]
    attributes: dict[str, int | float | str | bool]


class Script:
    """Takes down a run of the simulator while it happens; `transitions` are (time, component, whether it is up)."""

    def __init__(self, network: Network) -> None:
        self.publications: list[ScriptedEvent] = []
        self.transitions: list[tuple[int, int, bool]] = []
        self._publishers = network.publishers
        self._end_ns = round(network.duration_s * 1e9)

    def write_publications(self, chunk: Chunk) -> None:
        """The events of a chunk."""
        rows = [{}] * len(chunk.events) if chunk.attributes is None else chunk.attributes.to_pylist()
        for event, attributes in zip(chunk.events, rows, strict=True):
            first, count = int(event["first"]), int(event["count"])
            lifetime_ns = int(event["lifetime"])
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
        """What the simulator's events did is their own affair."""

    def write_deliveries(self, rows: Array) -> None:
        """What the simulator's events did is their own affair."""

    def write_transitions(self, rows: Array) -> None:
        """What failed or came back."""
        self.transitions += [
            (at_ns, component, up != 0)
            for at_ns, component, up in zip(*(rows[name].tolist() for name in ("at", "component", "up")), strict=True)
        ]
