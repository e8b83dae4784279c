"""The page about the protocol says which files an event passes: it passes no others, and there are not many."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tidings.model.scenario import Scheme
from tidings.protocol import Broker, BrokerSettings, Sync, wire
from tidings.protocol.broker._held import Held
from tidings.protocol.links._window import Parcel

ROOT = Path(__file__).parent.parent.parent
SECTION = (ROOT / "docs/reference/protocol.md").read_text("utf-8").split("## Following an event")[1].split("\n## ")[0]
SOURCES = ROOT / "src" / "tidings"
WALK = re.findall(r"^\| \d+ \| `([\w/.]+)`", SECTION, re.MULTILINE)
NAMED = {
    *WALK,
    *(f"protocol/{path}" for path in re.findall(r"`((?:broker|links|node)/\w+\.py)`", SECTION)),
    *re.findall(r"`(matching/\w+\.py)`", SECTION),
}
NOW = 10**17
MARK = b"an event under way"


def has_it(value: Any, depth: int = 0) -> bool:
    """Whether a value is the event, in whatever form."""
    if isinstance(value, bytes):
        return MARK in value
    if isinstance(value, Mapping):
        return "walk" in value
    if isinstance(value, list | tuple):
        return depth < 2 and any(has_it(each, depth + 1) for each in value)
    return isinstance(value, Held | Parcel | wire.Publish | wire.Publication | wire.Content)


def passed(broker: Broker, frame: bytes) -> set[str]:
    """The files of which a function has the event in hand while the broker takes this frame from its publisher."""
    found: set[str] = set()

    def look(frame: FrameType, event: str, result: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if (
            event in ("call", "return")
            and SOURCES in path.parents
            and any(map(has_it, [*frame.f_locals.values(), result]))
        ):
            found.add(path.relative_to(SOURCES).as_posix())

    sys.setprofile(look)
    try:
        broker.receive_many([("p", [frame])], NOW)
    finally:
        sys.setprofile(None)
    return found


def serving(scheme: Scheme) -> Broker:
    """A broker with a publisher and a subscriber."""
    broker = Broker(BrokerSettings(name="a", scheme=scheme))
    effects = broker.start(NOW)
    for name in "ps":
        effects += broker.connected(name, NOW)
    for token in [effect.token for effect in effects if isinstance(effect, Sync)]:
        broker.synced(token, NOW)
    for name in "ps":
        broker.receive(name, wire.encode(wire.Hello(wire.VERSION, name, "client", 1, 16)), NOW)
    broker.receive("p", wire.encode(wire.Advertise(broker.epoch, 0, "all", "TRUE")), NOW)
    broker.receive("s", wire.encode(wire.Subscribe(broker.epoch, 0, wire.Entry("all", "walk = 1", None, 1.0, 0))), NOW)
    return broker


@pytest.mark.parametrize("scheme", ["bypass", "bypass+buffer"])
@pytest.mark.parametrize("waits", [False, True])
def test_an_event_passes_the_files_of_the_page(scheme: Scheme, waits: bool) -> None:
    broker = serving(scheme)
    content = wire.encode_content(wire.Content({"walk": 1}, b"", MARK))
    event = wire.Publication(0, NOW, 0, 10**9, 100, content)
    if waits:
        broker.congested("s", True, NOW)
    files = passed(broker, wire.encode(wire.Publish(1, 0, 0, (event,), NOW)))
    assert broker.clients["s"].outbox.queued == waits
    assert {path for path in files if not path.startswith("scheduling/")} <= NAMED
    assert waits or set(WALK[4:13]) <= files, "the page names a file that the event does not pass"


def test_the_walk_is_short_and_its_files_are_there() -> None:
    assert 10 < len(WALK) <= 15
    assert all((SOURCES / path).is_file() for path in NAMED)
