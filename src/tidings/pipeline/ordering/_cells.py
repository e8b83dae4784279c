"""Cells: the rows that a replay needs in one place, and what a worker makes of them.

Theory of operation. A stream needs its publisher's departures: its own, that of the event before, those of a record. To
join them to every delivery would shuffle both tables and widen every row. Instead a *cell* holds the publications of
one publisher and the deliveries of its events to some of the subscriptions; the worker looks departures up. The
publications of a busy publisher are copied into several cells, but never more often than it has deliveries for each of
them, so that at most twice the rows travel and no cell is much larger than twice a publisher's publications.

Rows are sorted by cell alone, one 64-bit key (which Spark sorts by radix); the worker sorts the inside. Arrow batches
end anywhere, so the last cell of a batch is kept until it is complete; all complete ones are replayed at once, because
a call costs as much as hundreds of events. What a worker holds is one cell and a batch or two.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidings.ordering import COUNTS, Arrivals, Policy, Publications, Recorded, overtaken_ns, recorded_streams, replay

__all__ = ["CELLS", "FOUND", "LATCH_STEP_NS", "OVERTAKEN", "PAIR", "CellReplay", "whole_cells"]

CELLS: Final = "cell bigint, subscription int, sequence bigint, time_ns bigint, publisher string, matches array<int>"
"""A publication (`subscription` is -1, `time_ns` its departure, `matches` the subscriptions of this cell) or a delivery
(`time_ns` its arrival, no publisher, no matches). Subscriptions go by number. `matches` is never NULL: what Spark takes
to write NULL lists to Arrow grows with the square of their number."""

FOUND: Final = "fact string, publisher string, subscription int, policy int, place bigint, " + ", ".join(
    f"{name} bigint" for name in COUNTS
)
"""What a worker finds. `pair`: one policy's counts over one stream. `overtaken`: how many events (`received`) were
overtaken for `place` steps of LATCH_STEP_NS, rounded down. Others: a reason why so many deliveries were left out."""

IntArray = NDArray[np.int64]

PAIR: Final = "pair"
OVERTAKEN: Final = "overtaken"
PUBLICATION: Final = -1
LATCH_STEP_NS: Final = 10_000
LONGEST_LATCH_NS: Final = 2_000_000_000
ROWS_AT_A_TIME: Final = 200_000
"""Complete cells wait until there are so many rows of them."""


@dataclass(frozen=True, kw_only=True)
class CellReplay:
    """What a worker does: Arrow batches of CELLS, sorted by cell, in; batches of FOUND out."""

    policies: tuple[Policy, ...]
    clock_tolerance_ns: int
    false_matches: float
    unknown: str
    early: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in whole_cells(batches, ROWS_AT_A_TIME):
            recorded, publishers = self._recorded(rows)
            yield from self._found(recorded, publishers)

    def _recorded(self, rows: pa.Table) -> tuple[Recorded, pa.Array]:
        """The streams of some cells, and the names of the cells' publishers."""
        cells = _integers(rows["cell"])
        subscription, sequence, time_ns = (_integers(rows[name]) for name in ("subscription", "sequence", "time_ns"))
        number = np.zeros(cells.size, np.int64)
        number[1:] = np.cumsum(np.diff(cells) != 0)
        is_published = subscription == PUBLICATION
        published, arrived = np.flatnonzero(is_published), np.flatnonzero(~is_published)
        names = _names(number[published], rows["publisher"].take(pa.array(published)), int(number[-1]) + 1)
        matches = rows["matches"].take(pa.array(published)).combine_chunks()
        records = any(policy.record for policy in self.policies)
        publications = Publications(
            publisher=number[published],
            sequence=sequence[published],
            departure_ns=time_ns[published],
            key=_keys(names),
            wanted_row=_integers(pc.list_parent_indices(matches)),
            wanted_by=_integers(pc.list_flatten(matches)),
        )
        arrivals = Arrivals(number[arrived], subscription[arrived], sequence[arrived], time_ns[arrived])
        recorded = recorded_streams(
            publications,
            arrivals,
            records=records,
            clock_tolerance_ns=self.clock_tolerance_ns,
            false_matches=self.false_matches,
        )
        return recorded, names

    def _found(self, recorded: Recorded, publishers: pa.Array) -> Iterator[pa.RecordBatch]:
        streams = recorded.streams
        owners = publishers.take(pa.array(recorded.publisher))
        for number, policy in enumerate(self.policies):
            counts = replay(streams, [policy])[policy.name].counts
            yield _batch(PAIR, list(counts.T), publisher=owners, subscription=recorded.subscription, policy=number)
        lasted = overtaken_ns(streams)
        steps = np.minimum(lasted[lasted >= 0], LONGEST_LATCH_NS) // LATCH_STEP_NS
        places, times = np.unique(steps, return_counts=True)
        yield _batch(OVERTAKEN, [times], place=places)
        for reason, count in ((self.unknown, recorded.unknown), (self.early, recorded.early)):
            if count:
                yield _batch(reason, [np.array([count])])


def whole_cells(batches: Iterable[pa.RecordBatch], rows_at_a_time: int) -> Iterator[pa.Table]:
    """Rows that are sorted by cell, cut between cells: in tables of at least so many rows, but for the last."""
    complete: list[pa.RecordBatch] = []
    last: list[pa.RecordBatch] = []  # the cell that may go on in the next batch
    last_cell: int | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        cells = _integers(batch.column("cell"))
        if cells[0] != last_cell:
            complete, last = complete + last, []
        cut = int(np.searchsorted(cells, cells[-1]))
        if cut > 0:
            complete, last = [*complete, *last, batch.slice(0, cut)], []
        last.append(batch.slice(cut))
        last_cell = int(cells[-1])
        if sum(some.num_rows for some in complete) >= rows_at_a_time:
            yield pa.Table.from_batches(complete)
            complete = []
    if complete or last:
        yield pa.Table.from_batches(complete + last)


def _integers(values: pa.Array | pa.ChunkedArray) -> IntArray:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return np.ascontiguousarray(whole.to_numpy(zero_copy_only=False), np.int64)


def _names(cell: IntArray, publisher: pa.ChunkedArray, cells: int) -> pa.Array:
    """The publisher of each cell; NULL for one that has no publications."""
    name_of = np.full(cells, -1, np.int64)
    name_of[cell] = np.arange(cell.size)
    names = publisher.take(pa.array(name_of, mask=name_of < 0))
    # A cell is known by a hash of 64 bits; that two publishers have the same is as good as impossible.
    assert pc.all(pc.equal(names.take(pa.array(cell)), publisher), min_count=0).as_py(), "two publishers in a cell"
    return names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names


def _keys(names: pa.Array) -> IntArray:
    """A number for each name that depends on nothing else."""
    digests = [hashlib.blake2b((name or "").encode(), digest_size=8).digest() for name in names.to_pylist()]
    return np.frombuffer(b"".join(digests), np.int64)


def _batch(
    fact: str,
    counts: Sequence[IntArray],
    *,
    publisher: pa.Array | None = None,
    subscription: IntArray | None = None,
    policy: int | None = None,
    place: IntArray | None = None,
) -> pa.RecordBatch:
    rows = len(counts[0])
    columns = {
        "fact": pa.repeat(pa.scalar(fact, pa.string()), rows),
        "publisher": pa.nulls(rows, pa.string()) if publisher is None else publisher,
        "subscription": pa.nulls(rows, pa.int32()) if subscription is None else pa.array(subscription, pa.int32()),
        "policy": pa.nulls(rows, pa.int32()) if policy is None else pa.repeat(pa.scalar(policy, pa.int32()), rows),
        "place": pa.nulls(rows, pa.int64()) if place is None else pa.array(place, pa.int64()),
    }
    for number, name in enumerate(COUNTS):
        columns[name] = pa.array(counts[number], pa.int64()) if number < len(counts) else pa.nulls(rows, pa.int64())
    return pa.RecordBatch.from_pydict(columns)
