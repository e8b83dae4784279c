"""For the terminal: a scenario's summary, and the demonstration's result."""

from tidings.report.terminal._demo import print_demo
from tidings.report.terminal._tables import print_summary

__all__ = ["print_demo", "print_summary"]
