"""The public face of matching: subscriptions in, events in, matching subscriptions out.

Guarantees: the answer is exactly the set of subscriptions whose filter evaluates to true on the event, each once, in
no particular order. What the kernels cannot decide (LIKE, arithmetic, attribute against attribute) is confirmed by the
filter itself, only for the subscriptions whose other conditions hold.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tidings.compiled import lend
from tidings.errors import InputError
from tidings.matching._clauses import ClauseStore
from tidings.matching._columns import Columns
from tidings.matching._kernels import MISSING, RESIDUAL, WORDS, Array, Scratch, State, encode, match_each, match_tiles
from tidings.matching._partitions import Partitions
from tidings.matching._results import by_event, each_once
from tidings.matching._topics import TopicShapes
from tidings.model.filters import Filter

Id = Hashable
Attributes = Mapping[str, object]
LEARN_APART = 8  # between two learnings the index grows by at least this part of itself, which keeps the cost amortised
MIN_TOGETHER = 1024  # so many clauses at least are filed together, which takes a fraction of the time for each, or ...
TOGETHER_SHARE = 32  # ... this part of all
CHUNK = 4096  # events matched together: bounds the values and pairs held at once
MIN_TILED = 64  # fewer events than this are matched one by one
PROBED = 32  # events of a chunk that are matched one by one to see what it costs
PART_NS, SLOT_NS = 40.0, 25.0  # rough cost of asking a partition, and of looking at a slot, for one event
NOTHING = np.zeros(0, np.int64)
MAX_TABLE_COLUMNS = 4096  # more columns than this, 64 MB of table, and events are matched one by one
FIRST_OUTPUT = 4096  # matches that fit into the first output buffer; doubled when a tile finds more


class MatchingIndex:
    """Subscriptions by id, matched against events.

    >>> index = MatchingIndex()
    >>> index.add("s1", "symbol = 'YHOO' AND volume > 1000000")
    >>> index.add("s2", "volume BETWEEN 0 AND 500 OR symbol LIKE 'Y%'")
    >>> sorted(index.match({"symbol": "YHOO", "volume": 2_000_000}))
    ['s1', 's2']

    Ids are any hashable values. While all of them are whole numbers, `match_batch` returns an int64 array of them;
    otherwise an array of the objects.

    New subscriptions are kept beside the arrays until the next event, and then in a partition that every event tests,
    until there are enough of them to be filed. So matching may change an index after an addition: use such an index
    from one thread at a time.

    An index can be pickled. With protocol 5 its arrays, nearly all of it, travel as buffers of their own, so a copy
    that lies in a file can be mapped into the memory of many processes and is ready at once.
    """

    _state: State
    _lent: State
    _scratch: Scratch
    _room: int  # blocks that the scratch has room for
    _events: Array
    _found: Array
    _table: Array

    def __init__(self, subscriptions: Iterable[tuple[Id, Filter | str]] = ()) -> None:
        self._columns = Columns()
        self._shapes = TopicShapes()
        self._store = ClauseStore()
        self._partitions = Partitions()
        self._without_clause: list[Id] = []  # after unpickling: the ids that `_ids` does not contain
        self._unsure: dict[int, Filter] = {}  # by clause: filters that have to confirm what the kernels find
        self._ids: Array = np.zeros(
            16, np.int64
        )  # by clause; becomes an array of objects with the first id that is no int64
        self._placed_when_learned = 0
        self._fresh: dict[Id, Filter] = {}
        self._make_scratch()
        self.add_many(subscriptions)
        self._enter(files=True)

    def __getstate__(self) -> dict[str, object]:
        self._enter(files=True)
        kept = ("_columns", "_shapes", "_store", "_partitions", "_unsure", "_placed_when_learned")
        state = {name: getattr(self, name) for name in kept}
        # The dictionary of ids says nothing that the arrays do not, but for those whose filter has no clause at all.
        without_clause = [id for id, span in self._clauses_of.items() if not span]
        return {**state, "_ids": self._ids[: self._store.count], "_without_clause": without_clause}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fresh = {}
        self._make_scratch()

    @cached_property
    def _clauses_of(self) -> dict[Id, range]:
        """The clauses of each id; after unpickling made when first asked for, which matching never does."""
        alive = np.flatnonzero(self._partitions.slot_of[: self._store.count] >= 0)
        firsts = np.flatnonzero(self._store.first[alive] == alive)
        lengths = np.diff(np.append(firsts, len(alive))).tolist()
        spans = zip(self._ids[alive[firsts]].tolist(), alive[firsts].tolist(), lengths, strict=True)
        return {
            **{id: range(first, first + length) for id, first, length in spans},
            **dict.fromkeys(self._without_clause, range(0)),
        }

    def __len__(self) -> int:
        return len(self._clauses_of) + len(self._fresh)

    def __contains__(self, id: object) -> bool:
        return id in self._clauses_of or id in self._fresh

    @property
    def nbytes(self) -> int:
        """Memory of the index's arrays; the dictionary of ids and what is fresh come on top of it."""
        return self._store.nbytes + self._partitions.nbytes + self._ids.nbytes

    def add(self, id: Id, filter_or_text: Filter | str) -> None:
        """Add one subscription; its id must be new."""
        if id in self._clauses_of or id in self._fresh:
            raise InputError(f"subscription {id!r} is in the index already; remove it first")
        self._fresh[id] = Filter.parse(filter_or_text) if isinstance(filter_or_text, str) else filter_or_text
        if len(self._fresh) >= MIN_TOGETHER:
            self._enter()

    def add_many(self, subscriptions: Iterable[tuple[Id, Filter | str]]) -> None:
        """Add many at once. If one of them is wrong, none is added."""
        new: dict[Id, Filter] = {}
        for id, given in subscriptions:
            if id in self or id in new:
                raise InputError(f"subscription {id!r} is in the index already; remove it first")
            new[id] = Filter.parse(given) if isinstance(given, str) else given
        self._fresh.update(new)
        if len(self._fresh) >= MIN_TOGETHER:
            self._enter()

    def _enter(self, *, files: bool = False) -> None:
        """Make what is fresh part of the arrays; if asked, file all that is new."""
        new, self._fresh = self._fresh, {}
        for id, filter in new.items():
            settled = self._shapes.settled(filter)
            clauses = self._clauses_of[id] = self._store.add(self._columns, settled)
            if any(clause.residual is not None for clause in settled):
                self._unsure.update(dict.fromkeys(clauses, filter))
        store = self._store
        fresh = store.flush(self._columns)
        self._note_ids(new)
        young = store.young()
        # What concerns a small part of the index is learned at once, what concerns most of it a few times only.
        is_apart = store.count > self._placed_when_learned * (1 + 1 / LEARN_APART)
        if len(young) and (is_apart or LEARN_APART * store.bounds_on(young) < store.count):
            self._learn(young, fresh)
        elif len(fresh) or files:
            enough = 0 if files else max(MIN_TOGETHER, store.count // TOGETHER_SHARE)
            self._place(fresh, enough)

    def _learn(self, columns: Array, fresh: Array) -> None:
        """Learn columns from the clauses on them, and file those anew, together with what is fresh."""
        store = self._store
        on = store.clauses_on(columns)
        placed = on[on < store.count - len(fresh)]
        placed = placed[self._partitions.slot_of[placed] >= 0]
        if 2 * (len(placed) + len(fresh)) > store.count:
            store.learn(self._columns.kinds, columns)
            self._place_all()
        else:
            self._partitions.remove(store.state(), placed.tolist(), store.code_counts)
            store.learn(self._columns.kinds, columns)
            self._place(np.concatenate([placed, fresh]), 0)

    def remove(self, id: Id) -> None:
        """Forget a subscription."""
        if self._fresh.pop(id, None) is not None:
            return
        clauses = self._clauses_of.pop(id, None)
        if clauses is None:
            raise InputError(f"there is no subscription {id!r} in the index")
        store = self._store
        self._partitions.remove(store.state(), clauses, store.code_counts)
        store.remove(clauses)
        for clause in clauses:
            self._unsure.pop(clause, None)
        if store.is_mostly_garbage:
            self._compact()
        self._view_arrays()

    def match(self, attributes: Attributes) -> list[Id]:
        """The ids of the subscriptions that one event satisfies."""
        if self._fresh:
            self._enter()
        events, clauses = self._pairs(self._columns.row(attributes))
        if self._unsure:
            clauses = clauses[self._confirmed(events, clauses, lambda *_: attributes)]
        if self._store.any_multiple:
            clauses = np.unique(self._store.first[clauses])
        ids: list[Id] = self._ids[clauses].tolist()
        return ids

    def match_batch(self, batch: pa.RecordBatch) -> tuple[Array, Array]:
        """The same for every row of an Arrow batch: ``ids[offsets[i]:offsets[i + 1]]`` are the matches of row i."""
        self._enter(files=True)
        offsets = np.zeros(batch.num_rows + 1, np.int64)
        pieces = [np.zeros(0, np.int64)]
        for start in range(0, batch.num_rows, CHUNK):
            chunk = self._columns.rows(batch.slice(start, CHUNK), start)
            events, clauses = self._pairs(chunk)
            if self._unsure:
                keep = self._confirmed(events, clauses, _row_reader(batch, start))
                events, clauses = events[keep], clauses[keep]
            grouped, counts = by_event(events, clauses, len(chunk))
            if self._store.any_multiple:
                grouped, counts = each_once(grouped, counts, self._store.first)
            pieces.append(grouped)
            offsets[start + 1 : start + 1 + len(chunk)] = counts
        return np.cumsum(offsets), self._ids[np.concatenate(pieces)]

    # -- matching --------------------------------------------------------------------------------------------------

    def _pairs(self, values: Array) -> tuple[Array, Array]:
        """Pairs (event, clause) whose atoms hold; residuals are still to be confirmed."""
        codes = np.empty(values.shape, np.uint8)
        encode(self._state.boundaries, values, codes)
        count = self._search(values, codes)
        if count > len(self._events):
            self._events = np.empty(2 * count, np.int64)
            self._found = np.empty(2 * count, np.int64)
            self._search(values, codes)
        return self._events[:count], self._found[:count]

    def _search(self, values: Array, codes: Array) -> int:
        """Fill the output with pairs; their number, even if there was not enough room for them."""
        plan = self._partitions.plan()
        state, events, found = self._state, self._events, self._found
        equality, lent, scratch = state.equality_columns, self._lent, self._scratch
        if len(values) < MIN_TILED or values.shape[1] > MAX_TABLE_COLUMNS:
            return match_each(lent, scratch, plan.every, equality, values, codes, 0, events, found, 0)[0]
        count = match_each(lent, scratch, plan.plain, equality, values, codes, 0, events, found, 0)[0]
        for group in plan.tiled:
            # The first events are matched one by one, to measure what that costs; the rest in the cheaper direction.
            first, rest = values[:PROBED], np.arange(PROBED, len(values))
            count, looked = match_each(lent, scratch, group.parts, NOTHING, first, codes, 0, events, found, count)
            if len(group.parts) * PART_NS + looked / PROBED * SLOT_NS <= group.tiled_ns:
                count = match_each(lent, scratch, group.parts, NOTHING, values, codes, PROBED, events, found, count)[0]
                continue
            if len(self._table) < 256 * values.shape[1]:
                self._table = np.zeros((256 * values.shape[1], WORDS), np.uint64)
            order = rest if group.column < 0 else PROBED + _sorted_by(codes[PROBED:, group.column])
            count = match_tiles(
                state, group.parts, group.column, group.columns, values, codes, order, self._table, events, found, count
            )
        return count

    def _confirmed(self, events: Array, clauses: Array, read: Callable[[int, frozenset[str]], Attributes]) -> Array:
        keep = np.ones(len(events), bool)
        for i in np.flatnonzero(self._store.flags[clauses] & RESIDUAL).tolist():
            filter = self._unsure[int(clauses[i])]
            keep[i] = filter.matches(read(int(events[i]), filter.attributes))
        return keep

    # -- keeping -----------------------------------------------------------------------------------------------------

    def _view_arrays(self) -> None:
        self._state = self._partitions.state(self._store.state())
        self._lent = lend(self._state, getattr(self, "_lent", None))
        if self._room < len(self._state.live):
            self._room = 2 * len(self._state.live)
            self._scratch = lend(Scratch.for_blocks(self._room))

    def _make_scratch(self) -> None:
        """What is made anew for every copy of an index: the view of the arrays, and the buffers of a search."""
        self._room = -1
        self._view_arrays()
        self._events = np.empty(FIRST_OUTPUT, np.int64)
        self._found = np.empty(FIRST_OUTPUT, np.int64)
        self._table = np.zeros((0, WORDS), np.uint64)

    def _note_ids(self, new: Iterable[Id]) -> None:
        if len(self._ids) < self._store.count:
            larger = np.zeros(max(self._store.count, 2 * len(self._ids)), self._ids.dtype)
            larger[: len(self._ids)] = self._ids
            self._ids = larger
        for id in new:
            if self._ids.dtype != object and not (type(id) is int and -(2**63) <= id < 2**63):
                self._ids = self._ids.astype(object)
            span = self._clauses_of[id]
            for place in span:  # one by one: an id that is a tuple would be spread over a slice
                self._ids[place] = id

    def _place(self, fresh: Array, enough: int) -> None:
        store = self._store
        self._partitions.add(store.state(), fresh, store.code_counts, store.distinct, enough)
        self._view_arrays()

    def _place_all(self) -> None:
        """File everything anew: after learning, while that concerns most of it, and after compaction."""
        self._partitions = Partitions()
        alive = [np.arange(span.start, span.stop) for span in self._clauses_of.values()]
        self._placed_when_learned = self._store.count
        self._place(np.concatenate(alive) if alive else np.zeros(0, np.int64), 0)

    def _compact(self) -> None:
        spans = list(self._clauses_of.values())
        alive = np.sort(np.concatenate([np.arange(s.start, s.stop) for s in spans])) if spans else np.zeros(0, np.int64)
        self._store, number = self._store.compacted(alive)
        self._clauses_of = {
            id: range(int(number[span.start]), int(number[span.start]) + len(span)) if span else range(0)
            for id, span in self._clauses_of.items()
        }
        self._unsure = {int(number[clause]): filter for clause, filter in self._unsure.items()}
        self._ids = self._ids[alive]
        self._place_all()


def _row_reader(batch: pa.RecordBatch, start: int) -> Callable[[int, frozenset[str]], Attributes]:
    """Reads the attributes of one row of a tile that begins at `start`, as far as a filter needs them."""
    columns = {
        field.name: batch.column(position).cast(pa.float64())
        if pa.types.is_decimal(field.type)
        else batch.column(position)
        for position, field in enumerate(batch.schema)
    }

    def read(row: int, names: frozenset[str]) -> Attributes:
        return {name: columns[name][start + row].as_py() for name in names if name in columns}

    return read


def _sorted_by(codes: Array) -> Array:
    """The events that have a value, in the order of its code."""
    order = np.argsort(codes, kind="stable")
    return order[: len(order) - np.count_nonzero(codes == MISSING)]
