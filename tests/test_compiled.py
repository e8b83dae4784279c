"""Compiled kernels on disk are renewed when anything they are made of changes."""

import os
import subprocess
import sys
from pathlib import Path

KERNEL = """
from tidings.compiled import _forget_stale_kernels, compiled
from pathlib import Path
_forget_stale_kernels(Path(__file__).parent)
from constants import FACTOR

@compiled
def times(x):
    return FACTOR * x

print(times(10))
"""


def test_a_constant_from_another_file_is_not_remembered_from_last_time(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)

    def run(factor: int, mtime: float) -> str:
        constants = tmp_path / "constants.py"
        constants.write_text(f"FACTOR = {factor}\n")
        os.utime(constants, (mtime, mtime))
        command = [sys.executable, "-B", "kernel.py"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    then = (tmp_path / "kernel.py").stat().st_mtime
    assert run(2, then - 100) == "20\n"
    assert list(tmp_path.rglob("*.nbi"))
    assert run(3, then + 100) == "30\n"
