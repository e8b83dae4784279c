"""Compiled kernels on disk are renewed when what they are made of changes; borrowing ones cannot allocate."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from numba.core.errors import TypingError

from tidings.compiled import borrowing, borrowing_inner, borrowing_step

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


def test_a_borrowing_kernel_that_allocates_is_refused() -> None:
    """Nothing would ever free the array, so the compiler must not accept it."""
    with pytest.raises(TypingError, match="array passed into the function"):
        _allocating(3)
