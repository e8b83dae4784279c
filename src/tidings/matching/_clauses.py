"""The clauses of an index as arrays: atoms, flags, what each column has been learned to hold.

Clause numbers are handed out in ascending order and never reused; a subscription's clauses are consecutive. When
more than half of the atoms belong to removed clauses the caller asks for `compacted`, which renumbers.
"""

from collections.abc import Sequence

import numpy as np

from tidings.matching import _columns
from tidings.matching._columns import Columns
from tidings.matching._kernels import (
    IN_SET,
    INTERVAL,
    INTERVALS,
    MAX_BOUNDARIES,
    NOT_IN_SET,
    PLAIN,
    RESIDUAL,
    Array,
    State,
)
from tidings.matching._partitions import grown
from tidings.matching._placement_kernels import code_atoms
from tidings.model.filters import Clause, OneOf, Presence, Test, Topic, Within

MAX_EXPANDED = 16  # members of an IN list that become clauses of their own, each found by its value
GARBAGE_SHARE = 0.5
LEARN_FROM = 64  # bounds in a column before it is worth learning
LEARN_EVERY = 4  # learned anew when a column has this many times the bounds it had then ...
LEARN_UNTIL = 4_096  # ... up to a sample that is enough to know it by for good: no large index is laid out anew
EMPTY = np.zeros(0)
_ATOM_ARRAYS = ("_what", "_ends", "_set", "_code_low", "_code_high")
Atom = tuple[int, int, float, float, int]  # column, kind, low, high, set


class ClauseStore:
    """Arrays of clauses. `add` collects, `flush` makes what was added part of the arrays."""

    def __init__(self) -> None:
        self.count = 0
        self.atoms = 0
        self.any_multiple = False  # has some subscription more than one clause?
        self._garbage = 0
        self._pending: list[int] = []  # how many atoms each clause has
        self._pending_atoms: list[float] = []  # five numbers each: as many tuples would take far longer
        self._pending_flags: list[int] = []
        self._pending_first: list[int] = []
        self.span = np.zeros((16, 2), np.int64)  # first atom, number of atoms
        self.flags = np.zeros(16, np.uint8)
        self.first = np.zeros(16, np.int64)  # the first clause of the same subscription
        self._what = np.zeros((16, 2), np.int32)  # column, kind
        self._ends = np.zeros((16, 2))  # low, high
        self._set = np.zeros(16, np.int64)
        self._code_low = np.zeros(16, np.uint8)
        self._code_high = np.zeros(16, np.uint8)
        self._sets = np.zeros(16)
        self._sets_used = 0
        self.boundaries = np.full((1, 255), np.inf)
        self.boundaries[0, 0] = -1.0  # column 0, always 0, has code 1: strictly within an interval that accepts all
        self.code_counts = np.zeros(1)  # boundaries of each column
        self.distinct = np.full(1, -1, np.int64)  # different values in equalities; -1: not worth a table
        self._bounds = np.zeros(1, np.int64)  # bounds seen, and how many there were when last learned
        self._bounds_learned = np.zeros(1, np.int64)

    def __getstate__(self) -> dict[str, object]:
        """For a pickle: without the room to grow."""
        assert not self._pending, "what was added is not in the arrays yet"
        used = {"_sets": self._sets_used, **dict.fromkeys(("span", "flags", "first"), self.count)}
        used.update(dict.fromkeys(_ATOM_ARRAYS, self.atoms))
        return {**vars(self), **{name: getattr(self, name)[:length] for name, length in used.items()}}

    def state(self) -> State:
        known = (
            self.boundaries, self.span, self.flags, self._what, self._ends, self._set, self._code_low, self._code_high,
            self._sets,
        )  # fmt: skip
        return State(*known, *(EMPTY,) * (len(State._fields) - len(known)))

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    @property
    def is_mostly_garbage(self) -> bool:
        return self.atoms > 1024 and self._garbage > GARBAGE_SHARE * self.atoms

    def add(self, columns: Columns, clauses: Sequence[Clause]) -> range:
        """Collect the clauses of one subscription; their numbers."""
        first = self.count + len(self._pending)
        atoms = self._pending_atoms
        for clause in clauses:
            residual = 0 if clause.residual is None else RESIDUAL
            for tests in expanded(clause.tests):
                plain = PLAIN if len(tests) <= INTERVALS else 0
                for test in tests:
                    if type(test) is Within:
                        # Nearly all tests: no call is worth making.
                        known = columns.numbers.get(test.attribute)
                        column = columns.of(test.attribute, _columns.NUMBER) if known is None else known
                        atoms += (column, INTERVAL, test.low, test.high, 0)
                    else:
                        atom = self._atom(columns, test)
                        atoms += atom
                        if atom[1] != INTERVAL:
                            plain = 0
                self._pending.append(len(tests))
                self._pending_flags.append(plain | residual)
                self._pending_first.append(first)
        last = self.count + len(self._pending)
        self.any_multiple = self.any_multiple or last - first > 1
        return range(first, last)

    def flush(self, columns: Columns) -> Array:
        """Write what was collected into the arrays; the numbers of the new clauses."""
        new = len(self._pending)
        fresh = np.arange(self.count, self.count + new)
        self._widen(columns)
        if not new:
            return fresh
        atoms = np.array(self._pending_atoms, np.float64).reshape(-1, 5)
        end, last = self.atoms + len(atoms), self.count + new
        for name in ("span", "flags", "first"):
            setattr(self, name, grown(getattr(self, name), last))
        for name in _ATOM_ARRAYS:
            setattr(self, name, grown(getattr(self, name), end))
        lengths = np.array(self._pending)
        self.span[self.count : last, 0] = self.atoms + np.cumsum(lengths) - lengths
        self.span[self.count : last, 1] = lengths
        self.flags[self.count : last] = self._pending_flags
        self.first[self.count : last] = self._pending_first
        at = slice(self.atoms, end)
        self._what[at], self._ends[at], self._set[at] = atoms[:, :2], atoms[:, 2:4], atoms[:, 4]
        self._bounds += np.bincount(self._what[at, 0], minlength=len(self._bounds))
        self._pending, self._pending_atoms, self._pending_flags, self._pending_first = [], [], [], []
        code_atoms(self.state(), np.arange(self.atoms, end))
        self.count, self.atoms = last, end
        return fresh

    def remove(self, clauses: range) -> None:
        at = slice(clauses.start, clauses.stop)
        self._garbage += int(self.span[at, 1].sum())

    def young(self) -> Array:
        """The columns that hold so many more bounds than when they were learned that learning anew would pay."""
        due = np.maximum(LEARN_FROM, LEARN_EVERY * self._bounds_learned)
        return np.flatnonzero((self._bounds >= due) & (self._bounds_learned < LEARN_UNTIL))

    def bounds_on(self, columns: Array) -> int:
        """How many atoms there are on these columns, those of removed clauses among them."""
        return int(self._bounds[columns].sum())

    def clauses_on(self, columns: Array) -> Array:
        """The clauses with an atom on one of these columns, ascending, whether they are alive or not."""
        atoms = np.flatnonzero(np.isin(self._what[: self.atoms, 0], columns))
        return np.unique(np.searchsorted(self.span[: self.count, 0], atoms, side="right") - 1)

    def learn(self, kinds: Sequence[int], columns: Array) -> None:
        """Choose the boundaries of columns from the ends of the intervals on them, and code all atoms by them."""
        used = slice(0, self.atoms)
        column, (low, high) = self._what[used, 0], self._ends[used].T
        for c in columns.tolist():
            atoms = np.flatnonzero(column == c)
            bounds = np.concatenate([low[atoms], high[atoms]])
            bounds = np.sort(bounds[np.isfinite(bounds)])
            # equal shares of the bounds, so that crowded regions get the most boundaries
            picks = np.linspace(0, len(bounds) - 1, min(len(bounds), MAX_BOUNDARIES)).astype(np.int64)
            boundaries = np.unique(bounds[picks])
            self.boundaries[c] = np.inf
            self.boundaries[c, : len(boundaries)] = boundaries
            self.code_counts[c] = len(boundaries)
            if kinds[c] in (_columns.NUMBER, _columns.STRING):
                self.distinct[c] = len(np.unique(low[atoms][low[atoms] == high[atoms]]))
            code_atoms(self.state(), atoms)
        self._bounds_learned[columns] = self._bounds[columns]

    def compacted(self, alive: Array) -> "tuple[ClauseStore, Array]":
        """A store of the clauses `alive` (ascending) alone, and the new number of each old clause (-1: gone)."""
        store = ClauseStore()
        number = np.full(self.count, -1, np.int64)
        number[alive] = np.arange(len(alive))
        starts, lengths = self.span[alive].T
        store.count, store.atoms = len(alive), int(lengths.sum())
        store.any_multiple = self.any_multiple
        store.flags, store.first = self.flags[alive], number[self.first[alive]]
        store.span = np.column_stack([np.cumsum(lengths) - lengths, lengths])
        kept = np.repeat(starts - store.span[:, 0], lengths) + np.arange(store.atoms)
        for name in _ATOM_ARRAYS:
            setattr(store, name, getattr(self, name)[kept])
        store._sets, store._sets_used = self._sets, self._sets_used
        for name in ("boundaries", "code_counts", "distinct", "_bounds_learned"):
            setattr(store, name, getattr(self, name))
        store._bounds = np.bincount(store._what[:, 0], minlength=len(self._bounds))
        return store, number

    def _widen(self, columns: Columns) -> None:
        """Room for columns that have come into being; unlearned ones give every value the same code."""
        more = columns.count - len(self.code_counts)
        if more <= 0:
            return
        self.boundaries = np.concatenate([self.boundaries, np.full((more, 255), np.inf)])
        self.code_counts = np.concatenate([self.code_counts, np.zeros(more)])
        tabled = [0 if kind in (_columns.NUMBER, _columns.STRING) else -1 for kind in columns.kinds[-more:]]
        self.distinct = np.concatenate([self.distinct, np.array(tabled, np.int64)])
        self._bounds = np.concatenate([self._bounds, np.zeros(more, np.int64)])
        self._bounds_learned = np.concatenate([self._bounds_learned, np.zeros(more, np.int64)])

    def _atom(self, columns: Columns, test: Test) -> Atom:
        if isinstance(test, Within):
            return columns.of(test.attribute, _columns.NUMBER), INTERVAL, test.low, test.high, 0
        if isinstance(test, Presence):
            null = float(test.missing)
            return columns.of(test.attribute, _columns.NULL), INTERVAL, null, null, 0
        if isinstance(test, Topic):
            column = columns.of_topic(test.attribute, test.pattern)
            test = OneOf(test.attribute, "string", frozenset((test.pattern,)), test.negated)
        else:
            column = columns.of(test.attribute, _columns.KINDS.index(test.kind))
        if len(test.values) == 1 and not test.negated:
            (value,) = test.values
            number = columns.number_of(value) if isinstance(value, str) else float(value)
            return column, INTERVAL, number, number, 0
        numbers = sorted(columns.number_of(v) if isinstance(v, str) else float(v) for v in test.values)
        where = self._sets_used
        self._sets_used += 1 + len(numbers)
        self._sets = grown(self._sets, self._sets_used)
        self._sets[where : self._sets_used] = [len(numbers), *numbers]
        return column, NOT_IN_SET if test.negated else IN_SET, numbers[0], numbers[-1], where


def expanded(tests: tuple[Test, ...]) -> list[tuple[Test, ...]]:
    """The clause as it is or, if it has a short IN list and no equality, a clause for each member of the shortest."""
    for test in tests:
        if type(test) is OneOf:
            break
    else:
        return [tests]  # nearly always
    lists = [t for t in tests if type(t) is OneOf and not t.negated and t.kind != "boolean"]
    if not lists:
        return [tests]
    shortest = min(lists, key=lambda t: len(t.values))
    if not 1 < len(shortest.values) <= MAX_EXPANDED:
        return [tests]
    others = tuple(t for t in tests if t is not shortest)
    members = sorted(shortest.values)
    return [
        (*others, OneOf(attribute=shortest.attribute, kind=shortest.kind, values=frozenset([value])))  # type: ignore[arg-type]
        for value in members
    ]
