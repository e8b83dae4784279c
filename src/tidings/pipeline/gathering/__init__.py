"""Gathering: the rows of the large tables brought to the place of their unit, checked and matched, by one shuffle.

Spark reads, converts and checks them by its own expressions (`ingest`), so a trace may lie wherever Spark reads from.
On the way to where they meet, rows are Arrow columns, packed (rows/_packets.py).
"""

from tidings.pipeline.gathering._forms import UNIT, quarantine_columns
from tidings.pipeline.gathering._source import Source
from tidings.pipeline.gathering._touching import LARGE, Touched, touched_units

__all__ = ["LARGE", "UNIT", "Source", "Touched", "quarantine_columns", "touched_units"]
