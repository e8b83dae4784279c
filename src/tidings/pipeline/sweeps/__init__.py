"""Sweeps: one scenario under many settings and seeds, each simulation a Spark task (docs/reference/sweeps.md)."""

from tidings.pipeline.sweeps._run import run_sweep
from tidings.pipeline.sweeps._settings import Base, Setting, grid, read_list, read_vary
from tidings.pipeline.sweeps._summary import Estimate, Failure, SettingSummary, SweepResult
from tidings.pipeline.sweeps._written import write_value

__all__ = [
    "Base",
    "Estimate",
    "Failure",
    "Setting",
    "SettingSummary",
    "SweepResult",
    "grid",
    "read_list",
    "read_vary",
    "run_sweep",
    "write_value",
]
