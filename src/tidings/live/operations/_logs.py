"""Logs on standard error: one JSON object per line, or one sentence per line for people at a terminal.

A JSON line has the time, the level, the process and the event, and the event's details. No detail has the name of one
of these fixed keys. The text form leaves out events that matter only in case of trouble (`QUIET`); nothing above `info`
is ever left out.
"""

import datetime
import re
import sys
from typing import Any, Final, TextIO

import msgspec

__all__ = ["Log"]

QUIET: Final = frozenset(
    {
        "broker started",
        "connected",
        "disconnected",
        "draining",
        "metrics",
        "neighbour heard",
        "neighbour lost",
        "started",
        "stranger gone",
        "warm",
    }
)
"""Expected events that the text form leaves out."""
SENTENCES: Final = {
    "all brokers stopped": "all brokers have stopped",
    "asked to move": "asked client {client} to move to {to}",
    "broker died": "broker {broker} died ({why}); it is restarted",
    "broker left": "broker {broker} has left",
    "page": "page at {address}",
    "ready": "ready: {brokers} brokers, {links} links; Ctrl-C stops them",
    "reloaded": "reloaded: {change}",
    "serving": "serving at {listen}",
    "starting": "starting {brokers} brokers of {file}",
    "still starting": "still starting: {why}",
    "stopped": "stopped; {held} events are kept for the next start",
}
"""The text form of events; any other is its name with the details."""


class Log:
    """The log of one process; `is_text` chooses sentences instead of JSON."""

    def __init__(self, who: str, *, stream: TextIO | None = None, is_text: bool = False) -> None:
        self._who = who
        self._stream = stream
        self.is_text = is_text

    def info(self, event: str, /, **facts: Any) -> None:
        """An expected event."""
        self._write("info", event, facts)

    def warning(self, event: str, /, **facts: Any) -> None:
        """An event that an operator may have to look at."""
        self._write("warning", event, facts)

    def error(self, event: str, /, **facts: Any) -> None:
        """An event that an operator has to look at."""
        self._write("error", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        now = datetime.datetime.now(datetime.UTC)
        head = {"at": now.isoformat(timespec="milliseconds"), "level": level, "who": self._who, "event": event}
        assert head.keys().isdisjoint(facts), f"a fact of {event!r} has a name of the line's head: {facts}"
        if not self.is_text:
            line = msgspec.json.encode(head | facts, enc_hook=str).decode()
        elif level == "info" and event in QUIET:
            return
        else:
            line = f"{now.astimezone():%H:%M:%S} {self._who:<4} {_sentence(level, event, facts)}"
        stream = self._stream or sys.stderr
        stream.write(line + "\n")
        stream.flush()


def _sentence(level: str, event: str, facts: dict[str, Any]) -> str:
    known = SENTENCES.get(event)
    if known is not None:
        text = re.sub(r"\b1 (\w+)s\b", r"1 \1", known.format(**facts))
    else:
        details = ", ".join(f"{key} {value}" for key, value in facts.items() if key not in ("why", "remedy"))
        reasons = "; ".join(str(facts[key]) for key in ("why", "remedy") if facts.get(key))
        text = event + (f" ({details})" if details else "") + (f": {reasons}" if reasons else "")
    return text if level == "info" else f"{level}: {text}"
