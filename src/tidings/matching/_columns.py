"""Columns: an attribute as seen by tests of one kind, and how events become rows of doubles.

An attribute that filters compare with numbers and, elsewhere, with strings has two columns; an event fills the one of
its value's kind and leaves the other missing (NaN), just as a comparison across kinds is unknown. Strings that occur in
filters are numbered; any other string is -1, different from all of them. The column of kind "null" is 1 where the
attribute is NULL and 0 where it is not, and never missing. Topic patterns have a column for each of their shapes, which
holds the number of a topic's key through it (see `_topics`).
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import EventError
from tidings.matching._kernels import Array
from tidings.matching._topics import TopicShape, shape_of
from tidings.model.filters import check_value

KINDS = ("number", "string", "boolean", "null")
NUMBER, STRING, BOOLEAN, NULL = range(4)
NO_NUMBER = -1.0  # the number of a string that no filter mentions
ABSENT = (-1, -1, -1, -1)


class Columns:
    """The columns that the filters of an index read. Column 0 belongs to no attribute: always present, always 0."""

    def __init__(self) -> None:
        self.count = 1
        self.kinds: list[int] = [NUMBER]
        self._by_name: dict[str, list[int]] = {}  # attribute -> column per kind, -1 = none
        self.numbers: dict[str, int] = {}  # the columns of kind "number" among them
        self._null: list[tuple[str, int]] = []
        self._topics: dict[str, dict[TopicShape, int]] = {}  # attribute -> shape -> column
        self._strings: dict[str, float] = {}

    def of(self, attribute: str, kind: int) -> int:
        """The column of an attribute and kind, created when first asked for."""
        columns = self._by_name.setdefault(attribute, list(ABSENT))
        if columns[kind] < 0:
            columns[kind] = self.count
            self.count += 1
            self.kinds.append(kind)
            if kind == NUMBER:
                self.numbers[attribute] = columns[kind]
            if kind == NULL:
                self._null.append((attribute, columns[kind]))
        return columns[kind]

    def of_topic(self, attribute: str, pattern: str) -> int:
        """The column of an attribute as seen through the shape of a pattern."""
        self._by_name.setdefault(attribute, list(ABSENT))
        shapes, shape = self._topics.setdefault(attribute, {}), shape_of(pattern)
        if shape not in shapes:
            shapes[shape] = self.count
            self.count += 1
            self.kinds.append(STRING)
        return shapes[shape]

    def number_of(self, text: str) -> float:
        """The number that stands for a string mentioned in a filter."""
        return self._strings.setdefault(text, float(len(self._strings)))

    def row(self, attributes: Mapping[str, object]) -> Array:
        """One event as a matrix of one row."""
        row = [np.nan] * self.count
        row[0] = 0.0
        by_name = self._by_name
        for name, value in attributes.items():
            columns = by_name.get(name)
            if columns is None:
                continue
            plain = check_value(name, value)
            if type(plain) is str:
                if columns[STRING] >= 0:
                    row[columns[STRING]] = self._strings.get(plain, NO_NUMBER)
                if name in self._topics:
                    levels = plain.split("/")
                    for shape, column in self._topics[name].items():
                        row[column] = self._key_number(shape, levels)
            elif type(plain) is bool:
                if columns[BOOLEAN] >= 0:
                    row[columns[BOOLEAN]] = float(plain)
            elif plain is not None and columns[NUMBER] >= 0:
                row[columns[NUMBER]] = float(plain)
        for name, column in self._null:
            row[column] = float(attributes.get(name) is None)
        return np.array([row])

    def rows(self, batch: pa.RecordBatch, first_row: int = 0) -> Array:
        """A batch of events as a matrix; its columns are the attributes, its nulls missing values.

        `first_row` is the number of the first row in what the caller calls the batch, for messages.
        """
        out = np.full((batch.num_rows, self.count), np.nan)
        out[:, 0] = 0.0
        for _, column in self._null:
            out[:, column] = 1.0
        for position, name in enumerate(batch.schema.names):
            columns = self._by_name.get(name)
            if columns is not None:
                self._fill(out, name, batch.column(position), columns, first_row)
        return out

    def _fill(self, out: Array, name: str, values: pa.Array, columns: list[int], first_row: int) -> None:
        kind = values.type
        if pa.types.is_null(kind):
            return
        if pa.types.is_dictionary(kind):
            if not (pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type)):
                values = values.cast(kind.value_type)
            kind = kind.value_type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            column = columns[NUMBER]
            numbers = _numbers(name, values, first_row)
            if column >= 0:
                out[:, column] = numbers
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            self._fill_strings(out, name, values, columns[STRING])
        elif pa.types.is_boolean(kind):
            if columns[BOOLEAN] >= 0:
                out[:, columns[BOOLEAN]] = pc.cast(values, pa.uint8()).cast(pa.float64()).to_numpy(zero_copy_only=False)
        else:
            raise EventError(
                f"column {name!r} is of type {kind}: a filter reads it, but events have numbers, strings and "
                f"booleans only; cast it before matching"
            )
        if columns[NULL] >= 0:
            out[:, columns[NULL]] = values.is_null().to_numpy(zero_copy_only=False)

    def _fill_strings(self, out: Array, name: str, values: pa.Array, column: int) -> None:
        """The columns of an attribute that is a string; each distinct string is looked up once."""
        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        texts = coded.dictionary.to_pylist()
        indices = pc.fill_null(coded.indices.cast(pa.int64()), len(texts)).to_numpy(zero_copy_only=False)
        if column >= 0:
            out[:, column] = np.array([*(self._strings.get(text, NO_NUMBER) for text in texts), np.nan])[indices]
        if name in self._topics:
            topics = [text.split("/") for text in texts]
            for shape, number in self._topics[name].items():
                keys = [self._key_number(shape, levels) for levels in topics]
                out[:, number] = np.array([*keys, np.nan])[indices]

    def _key_number(self, shape: TopicShape, levels: list[str]) -> float:
        key = shape.key(levels)
        return NO_NUMBER if key is None else self._strings.get(key, NO_NUMBER)


def _numbers(name: str, values: pa.Array, first_row: int) -> Array:
    """The column as doubles, NULL as NaN; a NaN or an infinity among the values is an error."""
    numbers: Array = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    finite = np.isfinite(numbers)
    if not finite.all():
        wrong = ~finite & values.is_valid().to_numpy(zero_copy_only=False)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise EventError(
                f"column {name!r}, row {first_row + at}: {numbers[at]} is not a number that can be compared; "
                f"leave the value out (NULL) or send a finite one"
            )
    return numbers
