"""Several tracers as one."""

from collections.abc import Sequence

from tidings.live.transport._driver import Tracer
from tidings.protocol import Acknowledged, HandedOver, Note

__all__ = ["Tracers"]


class Tracers:
    """Passes everything on to each of them, in their order."""

    def __init__(self, tracers: Sequence[Tracer]) -> None:
        self._tracers = tracers

    def note(self, note: Note, now_ns: int) -> None:
        """Something happened to an event."""
        for each in self._tracers:
            each.note(note, now_ns)

    def handed_over(self, report: HandedOver) -> None:
        """A client has handed events to its application."""
        for each in self._tracers:
            each.handed_over(report)

    def acknowledged(self, report: Acknowledged, now_ns: int) -> None:
        """A peer has acknowledged events."""
        for each in self._tracers:
            each.acknowledged(report, now_ns)

    def stored(self, writes: dict[str, bytes | None], now_ns: int) -> None:
        """Values are stored or erased."""
        for each in self._tracers:
            each.stored(writes, now_ns)

    def tick(self) -> None:
        """Time has passed."""
        for each in self._tracers:
            each.tick()

    def close(self) -> None:
        """The driver has stopped."""
        for each in self._tracers:
            each.close()
