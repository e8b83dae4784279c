"""For the terminal: a scenario's summary."""

from tidings.report.terminal._tables import print_summary

__all__ = ["print_summary"]
