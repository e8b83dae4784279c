"""Recorded values: a column of a CSV or Parquet file, such as measured delays.

    propagation = { distribution = "recorded", file = "delays.csv", column = "rtt_ms", unit = "ms" }
    propagation = { distribution = "replay", file = "delays.csv", column = "rtt_ms", unit = "ms", then = "repeat" }

    slowness = { distribution = "replay", packets = "uplink.down.gz", per = "50 kB" }

"recorded" draws from the values at random (`Empirical.from_samples`), "replay" uses them in order. The path
is relative to the scenario file. A bad value is an error that names the row.
"""

import csv
import gzip
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, TextIO

from tidings.errors import InputError
from tidings.model.documents import Place, describe, suggestion
from tidings.model.units import Dimension, parse_quantity

__all__ = ["RECORDED", "REPLAY", "capacity_values", "recorded_quantiles", "recorded_values"]

RECORDED: Final = "recorded"
REPLAY: Final = "replay"
_KEYS: Final = {RECORDED: ("file", "column", "unit"), REPLAY: ("file", "column", "unit", "then")}
_CAPACITY_KEYS: Final = ("packets", "per", "then")
_PACKET_KB: Final = 1.5
_ROWS_MAX: Final = 50_000_000
_EXAMPLE: Final = '{{ distribution = "{}", file = "delays.csv", column = "delay", unit = "ms" }}'


def recorded_quantiles(
    parameters: dict[str, Any], dimension: Dimension | Literal["number"], place: Place
) -> list[float]:
    """The quantiles of a recorded column, in the base unit of the variable."""
    return _recorded(RECORDED, parameters, dimension, place, _quantiles)


def recorded_values(parameters: dict[str, Any], dimension: Dimension | Literal["number"], place: Place) -> list[float]:
    """The values of a recorded column in their order, in the base unit of the variable."""
    return _recorded(REPLAY, parameters, dimension, place, _values)


def capacity_values(raw: dict[str, Any], place: Place) -> list[float]:
    """The slowness of a link, in s/kB, from the times at which packets of 1,500 B could cross it (a mahimahi trace).

    Each value is that of `per` of consecutive packets: the slowness of a link in constant use.
    """
    for key in raw:
        if key not in _CAPACITY_KEYS:
            (place / key).fail(
                f"a replay of `packets` has no parameter `{key}`; "
                f"{suggestion(key, _CAPACITY_KEYS, otherwise='it takes')}"
            )
    if not isinstance(raw["packets"], str):
        (place / "packets").fail(f"expected the name of a file, got {describe(raw['packets'])}")
    try:
        per_kb = parse_quantity(raw.get("per", "15 kB"), "size")
    except InputError as error:
        (place / "per").fail(str(error))
    packets = max(1, round(per_kb / _PACKET_KB))
    path = place.source.directory / raw["packets"]
    try:
        times_ms = _read_times(path)
        if len(times_ms) <= packets:
            raise InputError(f"{path}: {len(times_ms)} packets are too few for {per_kb:g} kB; write a smaller `per`")
    except OSError as error:
        (place / "packets").fail(f"{path} cannot be read: {error}; paths are relative to the scenario")
    except InputError as error:
        (place / "packets").fail(str(error))
    edges_ms = times_ms[::packets]
    return [(after - before) / 1_000.0 / (packets * _PACKET_KB) for before, after in pairwise(edges_ms)]


def _read_times(path: Path) -> list[float]:
    times_ms: list[float] = []
    with _opened(path) as file:
        for line, text in enumerate(file, 1):
            value = _number(text.strip(), path, line, "the time")
            if times_ms and value < times_ms[-1]:
                raise InputError(f"{path}:{line}: {value:g} comes after {times_ms[-1]:g}; sort the times")
            times_ms.append(value)
            if len(times_ms) > _ROWS_MAX:
                raise InputError(f"{path}: more than {_ROWS_MAX:,} rows; record fewer")
    return times_ms


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _recorded(
    name: str,
    raw: dict[str, Any],
    dimension: Dimension | Literal["number"],
    place: Place,
    read: Callable[[Path, str], Sequence[float]],
) -> list[float]:
    for key in raw:
        if key not in _KEYS[name]:
            (place / key).fail(
                f"distribution `{name}` has no parameter `{key}`; {suggestion(key, _KEYS[name], otherwise='it takes')}"
            )
    for key in ("file", "column"):
        if key not in raw:
            place.fail(f"distribution `{name}` needs `{key}`; write for example {_EXAMPLE.format(name)}")
        if not isinstance(raw[key], str):
            (place / key).fail(f"expected a string, got {describe(raw[key])}")
    factor = _factor(name, raw, dimension, place)
    path = place.source.directory / raw["file"]
    try:
        found = read(path, raw["column"])
    except OSError as error:
        (place / "file").fail(f"{path} cannot be read: {error.strerror or error}; paths are relative to the scenario")
    except _ColumnError as error:
        (place / "column").fail(str(error))
    except InputError as error:
        (place / "file").fail(str(error))
    return [factor * value for value in found]


class _ColumnError(InputError):
    """Raised when a file has no such column."""


def _factor(name: str, raw: dict[str, Any], dimension: Dimension | Literal["number"], place: Place) -> float:
    """One unit of the column in the base unit."""
    if dimension == "number":
        if "unit" in raw:
            (place / "unit").fail("plain numbers have no unit; leave it out")
        return 1.0
    if "unit" not in raw:
        place.fail(f"distribution `{name}` needs the `unit` of the column; write for example {_EXAMPLE.format(name)}")
    try:
        return parse_quantity(f"1 {raw['unit']}", dimension)
    except InputError as error:
        (place / "unit").fail(str(error))


def _quantiles(path: Path, column: str) -> tuple[float, ...]:
    stamp = path.stat()
    return _quantiles_of(path, column, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=64)
def _quantiles_of(path: Path, column: str, modified_ns: int, size: int) -> tuple[float, ...]:  # noqa: ARG001 - of this file
    from tidings.model.distributions import Empirical

    return Empirical.from_samples(_values(path, column)).quantiles


def _values(path: Path, column: str) -> list[float]:
    values = _read_parquet(path, column) if path.suffix.lower() == ".parquet" else _read_csv(path, column)
    if len(values) < 2:
        raise InputError(f"{path}: column {column!r} has {len(values)} values; a distribution needs at least 2")
    return values


def _read_csv(path: Path, column: str) -> list[float]:
    values: list[float] = []
    with _opened(path) as file:
        reader = csv.DictReader(file)
        _require_column(path, column, reader.fieldnames or [])
        for row in reader:
            values.append(_number(row[column], path, reader.line_num, column))
            if len(values) > _ROWS_MAX:
                raise InputError(f"{path}: more than {_ROWS_MAX:,} rows; record fewer")
    return values


def _number(text: str | None, path: Path, line: int, column: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        raise InputError(f"{path}:{line}: {column} is {text!r}, not a number; remove the row") from None
    if not 0.0 <= value < float("inf"):
        raise InputError(f"{path}:{line}: {column} is {text!r}, but must be 0 or more and finite; remove the row")
    return value


def _read_parquet(path: Path, column: str) -> list[float]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _require_column(path, column, file.schema_arrow.names)
            found = file.read([column])[column]
            values = found.cast(pa.float64()).to_pylist()
    except pa.ArrowException as error:
        raise InputError(f"{path}: column {column!r} cannot be read as numbers: {error}") from None
    for number, value in enumerate(values):
        if value is None or not 0.0 <= value < float("inf"):
            raise InputError(
                f"{path}: row {number + 1} of {column} is {value!r}, but must be a number of 0 or more; remove the row"
            )
    return [float(value) for value in values]


def _require_column(path: Path, column: str, names: Any) -> None:
    if column not in names:
        raise _ColumnError(f"{path} has no column {column!r}; {suggestion(column, names, otherwise='it has')}")
