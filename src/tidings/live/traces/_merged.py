"""The windows of all brokers as one trace: the events that all of them have recorded, in the contract's tables.

- Brokers record different shares of the events over different times. The trace begins where share x time is largest,
  and has the events of the smallest share from there on; samples are nested, so these are complete.
- An event belongs to the trace if it departed in that time, by the clock of the broker that accepted it; hops and
  deliveries come with it. Events of the last seconds are left out: they may still be under way. How long that is
  follows from the ages of deliveries.
- Subscriptions are the present ones. Events count for one from when it was made; deliveries to others are left out.

Pure: windows in, Arrow tables out.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from tidings.live.traces._recorder import RecordedSubscription
from tidings.live.traces._trace_files import attribute_kinds, fitting, write_table
from tidings.live.traces._window import DELIVERY, HOP, LINK, OUTCOMES, PUBLICATION, Piece, rows_of
from tidings.model.trace import TABLES, publications
from tidings.protocol import Sampler

__all__ = ["MergedWindows", "merged", "write_merged"]

SETTLED_NS: Final = 2_000_000_000
"""Events that departed more recently may be under way, or not yet acknowledged."""
SETTLED_AGES: Final = 2
"""So may those that are younger than this many times the greatest age of a delivery."""
SETTLED_PART: Final = 5
"""But at most this part of the window is left out."""


class _Window(Protocol):
    """One broker's window, as it was asked for."""

    @property
    def name(self) -> str: ...
    @property
    def since_ns(self) -> int: ...
    @property
    def now_ns(self) -> int: ...
    @property
    def pieces(self) -> tuple[Piece, ...]: ...
    @property
    def subscriptions(self) -> tuple[RecordedSubscription, ...]: ...


class MergedWindows(NamedTuple):
    """A trace of the last `lasted_ns`, and the share of the events that it has."""

    tables: dict[str, pa.Table]
    share: float
    lasted_ns: int
    events: int


def merged(
    windows: Sequence[_Window], links: Mapping[str, Iterable[str]], *, last_ns: int | None = None
) -> MergedWindows:
    """One trace of these windows: of the last `last_ns` at most. `links` are the neighbours of each broker."""
    begin_ago_ns, share = _part(windows, last_ns)
    rows = {window.name: _rows(window, begin_ago_ns) for window in windows}
    settled_ns = _settled_ns(rows.values(), begin_ago_ns)
    events = _events(windows, rows, share, begin_ago_ns, settled_ns)
    tables = {
        "publications": _publications(events),
        "hops": _hops(rows, events),
        "deliveries": _deliveries(windows, rows, events),
        "subscriptions": _subscriptions(windows),
        "transitions": _transitions(windows, rows, begin_ago_ns),
        "topology": _topology(windows, links),
    }
    return MergedWindows(tables, share, max(begin_ago_ns - settled_ns, 0), len(events))


def write_merged(windows: MergedWindows, directory: Path) -> None:
    """Write the trace, a file per table."""
    for name, table in windows.tables.items():
        write_table(directory, name, "part-0", table, windows.share)


# -- which part ------------------------------------------------------------------------------------------------------


def _part(windows: Sequence[_Window], last_ns: int | None) -> tuple[int, float]:
    """How long ago the trace begins, and its share: such that share x time is largest."""
    whole_ns = min(window.now_ns - window.since_ns for window in windows)
    if last_ns is not None:
        whole_ns = min(whole_ns, last_ns)
    ages = sorted(
        ((window.now_ns - piece.began_ns, window.now_ns - piece.ended_ns, piece.share) for window in windows
         for piece in window.pieces),
        key=lambda each: each[1],
    )  # fmt: skip
    best_ns, best_share, share = 0, 1.0, 1.0
    begins = sorted({whole_ns, *(min(began, whole_ns) for began, _, _ in ages)})
    place = 0
    for begin_ns in begins:
        while place < len(ages) and ages[place][1] < begin_ns:
            share = min(share, ages[place][2])
            place += 1
        if share * begin_ns > best_share * best_ns:
            best_ns, best_share = begin_ns, share
    return best_ns, best_share


_Rows = dict[int, list[list[Any]]]


def _rows(window: _Window, begin_ago_ns: int) -> _Rows:
    """The rows of a window by kind, with names for numbers, from the pieces that are not older."""
    found: _Rows = {PUBLICATION: [], HOP: [], DELIVERY: [], LINK: []}
    for piece in window.pieces:
        if window.now_ns - piece.ended_ns >= begin_ago_ns:
            continue
        names = piece.names
        for row in rows_of(piece):
            row[1] = names[row[1]]
            if row[0] == HOP:
                row[3] = names[row[3]]
            elif row[0] == DELIVERY:
                row[3], row[4] = names[row[3]], names[row[4]]
            found[row[0]].append(row)
    return found


def _settled_ns(rows: Iterable[_Rows], begin_ago_ns: int) -> int:
    oldest_ns = max((row[6] for some in rows for row in some[DELIVERY]), default=0)
    return min(max(SETTLED_NS, SETTLED_AGES * oldest_ns), begin_ago_ns // SETTLED_PART)


_Events = dict[tuple[str, int], tuple[str, list[Any]]]
"""By publisher and sequence number: the broker that accepted the event, and the row."""


def _events(
    windows: Sequence[_Window], rows: Mapping[str, _Rows], share: float, begin_ago_ns: int, settled_ns: int
) -> _Events:
    is_sampled = Sampler(share)
    found: _Events = {}
    for window in windows:
        from_ns, until_ns = window.now_ns - begin_ago_ns, window.now_ns - settled_ns
        for row in rows[window.name][PUBLICATION]:
            publisher, sequence, departure_ns = row[1], row[2], row[3]
            client, _, epoch = publisher.rpartition("/")
            if from_ns <= departure_ns < until_ns and is_sampled((client, int(epoch), sequence)):
                found.setdefault((publisher, sequence), (window.name, row))
    return found


# -- tables ----------------------------------------------------------------------------------------------------------


def _publications(events: _Events) -> pa.Table:
    attributes = [{"attributes": row[7]} for _, row in events.values()]
    kinds = attribute_kinds(attributes)
    schema = publications(kinds)
    columns: dict[str, list[Any]] = {
        "publisher": [publisher for publisher, _ in events],
        "sequence": [sequence for _, sequence in events],
        "departure_ns": [row[3] for _, row in events.values()],
        "broker": [broker for broker, _ in events.values()],
        "size_bytes": [row[5] for _, row in events.values()],
        "lifetime_ns": [row[6] for _, row in events.values()],
        "attributes": [fitting(row["attributes"], kinds) for row in attributes],
    }
    return pa.table(columns, schema=schema)


def _hops(rows: Mapping[str, _Rows], events: _Events) -> pa.Table:
    found: list[tuple[Any, ...]] = []
    for (publisher, sequence), (broker, row) in events.items():
        departed_ns, accepted_ns = row[3], row[3] + row[4]
        found.append((publisher, sequence, None, broker, departed_ns, departed_ns, accepted_ns, OUTCOMES[0]))
    for broker, mine in rows.items():
        for _, publisher, sequence, peer, queued_ns, waited_ns, took_ns, outcome in mine[HOP]:
            if (publisher, sequence) in events:
                sent_ns = None if waited_ns is None else queued_ns + waited_ns
                received_ns = None if took_ns is None else queued_ns + took_ns
                times_ns = (queued_ns, sent_ns, received_ns)
                found.append((publisher, sequence, broker, peer, *times_ns, OUTCOMES[outcome]))
    columns = [list(column) for column in zip(*found, strict=True)] or [[] for _ in range(8)]
    *first, received, outcomes = columns
    return pa.table([*first, received, received, received, outcomes], schema=TABLES["hops"])


def _deliveries(windows: Sequence[_Window], rows: Mapping[str, _Rows], events: _Events) -> pa.Table:
    found: list[tuple[Any, ...]] = []
    for window in windows:
        since_ns = {(each.client, each.name): each.from_ns for each in window.subscriptions}
        seen: set[tuple[str, int, str, str]] = set()
        for _, publisher, sequence, client, name, departure_ns, age_ns in rows[window.name][DELIVERY]:
            from_ns, key = since_ns.get((client, name)), (publisher, sequence, client, name)
            if from_ns is None or departure_ns < from_ns or (publisher, sequence) not in events or key in seen:
                continue
            seen.add(key)
            arrived_ns = departure_ns + max(age_ns, 0)
            found.append((publisher, sequence, f"{client}/{name}", window.name, arrived_ns, arrived_ns))
    columns = [list(column) for column in zip(*found, strict=True)] or [[] for _ in range(6)]
    return pa.table(columns, schema=TABLES["deliveries"])


def _subscriptions(windows: Sequence[_Window]) -> pa.Table:
    """A client that has just moved may be known at two brokers: it is where it came last."""
    found: dict[str, tuple[str, RecordedSubscription]] = {}
    for window in windows:
        for each in window.subscriptions:
            label = f"{each.client}/{each.name}"
            if label not in found or found[label][1].from_ns < each.from_ns:
                found[label] = (window.name, each)
    columns: dict[str, list[Any]] = {
        "subscription": list(found),
        "subscriber": [each.client for _, each in found.values()],
        "broker": [broker for broker, _ in found.values()],
        "filter": [each.filter for _, each in found.values()],
        "max_delay_ns": [each.max_delay_ns for _, each in found.values()],
        "price": [each.price for _, each in found.values()],
        "from_ns": [each.from_ns for _, each in found.values()],
        "until_ns": [None] * len(found),
    }
    return pa.table(columns, schema=TABLES["subscriptions"])


def _transitions(windows: Sequence[_Window], rows: Mapping[str, _Rows], begin_ago_ns: int) -> pa.Table:
    found = [
        ("link", window.name, peer, at_ns, up)
        for window in windows
        for _, peer, at_ns, up in rows[window.name][LINK]
        if at_ns >= window.now_ns - begin_ago_ns
    ]
    columns = [list(column) for column in zip(*found, strict=True)] or [[] for _ in range(5)]
    return pa.table(columns, schema=TABLES["transitions"])


def _topology(windows: Sequence[_Window], links: Mapping[str, Iterable[str]]) -> pa.Table:
    names = {window.name for window in windows}
    found = [{"kind": "broker", "source": name} for name in sorted(names)]
    found += [
        {"kind": "link", "source": name, "target": other} for name in sorted(names) for other in sorted(links[name])
        if other in names
    ]  # fmt: skip
    return pa.Table.from_pylist(found, schema=TABLES["topology"])
