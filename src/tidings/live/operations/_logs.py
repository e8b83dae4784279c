"""Structured logs: one JSON object per line on standard error, with the time, who speaks, what happened, and the
facts of it. No fact is called as one of the first four."""

import datetime
import sys
from typing import Any, TextIO

import msgspec

__all__ = ["Log"]


class Log:
    """The log of one process."""

    def __init__(self, who: str, *, stream: TextIO | None = None) -> None:
        self._who = who
        self._stream = stream

    def info(self, event: str, /, **facts: Any) -> None:
        """Something that is as it should be."""
        self._write("info", event, facts)

    def warning(self, event: str, /, **facts: Any) -> None:
        """Something that somebody may have to look at."""
        self._write("warning", event, facts)

    def error(self, event: str, /, **facts: Any) -> None:
        """Something that somebody has to look at."""
        self._write("error", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        head = {"at": at, "level": level, "who": self._who, "event": event}
        assert head.keys().isdisjoint(facts), f"a fact of {event!r} has a name of the line's head: {facts}"
        line = head | facts
        stream = self._stream or sys.stderr
        stream.write(msgspec.json.encode(line, enc_hook=str).decode() + "\n")
        stream.flush()
