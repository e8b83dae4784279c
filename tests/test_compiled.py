"""Compiled kernels on disk are renewed when what they are made of changes; borrowing ones cannot allocate, and take
records of arrays by reference."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from numba import typeof, types
from numba.core.errors import TypingError

from tidings.compiled import borrowing, borrowing_inner, borrowing_step, lend

Array = npt.NDArray[np.float64]

KERNEL = """
from pathlib import Path

from tidings.compiled import _forget_stale_kernels, compiled

_forget_stale_kernels(Path(__file__).parent)
from kernels.inner import FACTOR

@compiled
def times(x):
    return FACTOR * x

print(times(10), times.stats.cache_hits[times.signatures[0]])
"""


def test_a_kernel_is_forgotten_when_what_it_imports_changes(tmp_path: Path) -> None:
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text("from kernels.constants import FACTOR\n")
    (package / "kernel.py").write_text(KERNEL)
    then = (package / "kernel.py").stat().st_mtime

    def run(*, factor: int, changed: float, other_changed: float = 0.0) -> str:
        for name, text, mtime in (
            ("constants", f"FACTOR = {factor}\n", then + changed),
            ("unrelated", "", then + other_changed),
            ("inner", None, then - 100),
        ):
            if text is not None:
                (package / f"{name}.py").write_text(text)
            os.utime(package / f"{name}.py", (mtime, mtime))
        command = [sys.executable, "-B", "-m", "kernels.kernel"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert run(factor=2, changed=-100) == "20 0\n"
    assert list(tmp_path.rglob("*.nbi"))
    assert run(factor=2, changed=-100, other_changed=100) == "20 1\n"
    assert run(factor=3, changed=100) == "30 0\n"


@borrowing_step
def _doubled(values: Array, place: int) -> float:
    return float(2.0 * values[place])


@borrowing_inner
def _sum_doubled(values: Array) -> float:
    total = 0.0
    for place in range(len(values)):
        total += _doubled(values, place)
    return total


@borrowing
def _outer(values: Array) -> float:
    return _sum_doubled(values)


@borrowing
def _allocating(count: int) -> float:
    return float(np.ones(count).sum())


def test_borrowing_kernels_call_each_other() -> None:
    assert _outer(np.array([1.0, 2.5])) == 7.0


def test_an_inner_kernel_is_not_called_from_python() -> None:
    assert _outer(np.array([1.0])) == 2.0  # compiled, as a part of another
    with pytest.raises(TypeError, match="_sum_doubled is an inner kernel"):
        _sum_doubled(np.array([1.0]))
    with pytest.raises(TypeError, match="_doubled is an inner kernel"):
        _doubled(np.array([1.0]), 0)


def test_a_borrowing_kernel_that_allocates_is_refused() -> None:
    """Nothing would ever free the array, so the compiler must not accept it."""
    with pytest.raises(TypingError, match="array passed into the function"):
        _allocating(3)


PAIR = np.dtype([("whole", np.int64), ("share", np.float64)], align=True)


class Sums(NamedTuple):
    by_row: Array


class Ledger(NamedTuple):
    counts: npt.NDArray[np.int64]
    pairs: npt.NDArray[Any]
    grid: Array
    sums: Sums
    is_large: npt.NDArray[np.bool_]


@borrowing_inner
def _row_sum(row: Array, columns: int) -> float:
    total = 0.0
    for column in range(columns):
        total += row[column]
    return total


@borrowing_inner
def _book(ledger: Ledger, place: int, by: int) -> None:
    ledger.counts[place] += by
    ledger.pairs[place].whole = ledger.counts[place]
    ledger.pairs[place].share = 0.5
    ledger.pairs[place + 1] = ledger.pairs[place]
    ledger.grid[place, 1] = ledger.pairs[place + 1].whole
    ledger.sums.by_row[place] = _row_sum(ledger.grid[place], 3)
    ledger.is_large[place] = ledger.counts[place] > 3


@borrowing
def _book_all(ledger: Ledger) -> int:
    for place in range(len(ledger.counts) - 1):
        _book(ledger, place, 4 if place == 0 else 1)
    _book(ledger, 0, 10)
    return len(ledger.grid)


def _ledger() -> Ledger:
    return Ledger(
        counts=np.arange(3),
        pairs=np.zeros(3, PAIR),
        grid=np.full((3, 3), 0.25),
        sums=Sums(np.zeros(3)),
        is_large=np.zeros(3, np.bool_),
    )


def test_a_record_of_arrays_is_lent() -> None:
    """Elements, records, rows, records within the record and lengths; what a kernel writes is in the arrays."""
    ledger = _ledger()
    assert _book_all(lend(ledger)) == 3
    assert ledger.counts.tolist() == [14, 2, 2]
    assert ledger.pairs.tolist() == [(14, 0.5), (14, 0.5), (2, 0.5)]
    assert ledger.grid.tolist() == [[0.25, 14.0, 0.25], [0.25, 2.0, 0.25], [0.25, 0.25, 0.25]]
    assert ledger.sums.by_row.tolist() == [14.5, 2.5, 0.0]
    assert ledger.is_large.tolist() == [True, False, False]


def test_constants_make_no_kernels_of_their_own() -> None:
    kernel: Any = _book
    for place, by in ((0, 4), (0, 1), (1, 10)):
        constants = types.literal(place), types.literal(by)
        kernel.get_call_template((typeof(lend(_ledger())), *constants), {})
    assert len(kernel.signatures) == 1


def test_an_array_that_is_not_contiguous_is_not_lent() -> None:
    with pytest.raises(AssertionError, match="by_row is not contiguous"):
        lend(Sums(np.zeros((4, 4))[:, 0]))


@borrowing
def _figures(whole: int, other: int, real: float, second: float) -> tuple[int, int, float, float, int, bool, float]:
    sums = whole + other - whole * 2
    is_less = bool(whole < other)
    return min(whole, other), max(sums, 3), min(real, second), max(real, second), int(real), is_less, whole + second


@pytest.mark.parametrize("second", [2.5, -0.5, math.nan])
def test_operators_on_numbers_are_those_of_python(second: float) -> None:
    """Also for what is not a number: min and max keep the first unless the second is better."""
    for whole, other in ((-7, 5), (5, -7)):
        found = _figures(whole, other, 1.9, second)
        np.testing.assert_equal(found, _figures.py_func(whole, other, 1.9, second))  # type: ignore[attr-defined]
        assert [type(value) for value in found] == [int, int, float, float, int, bool, float]


def test_a_kernel_for_python_is_compiled_once_when_kernels_call_it() -> None:
    """As a part of its caller: no machine code of its own, until Python calls it."""

    @borrowing
    def doubled(number: int) -> int:
        return 2 * number

    @borrowing
    def quadrupled(number: int) -> int:
        return doubled(doubled(number))

    assert quadrupled(3) == 12
    assert not doubled.signatures  # type: ignore[attr-defined]
    assert doubled(3) == 6
