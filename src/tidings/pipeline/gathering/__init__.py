"""Gathering: the rows of the large tables brought to the place of their unit, checked and matched, by one shuffle.

Spark reads, converts and checks them by its own expressions (`ingest`), so a trace may lie wherever Spark reads from.
They travel as named, typed columns; what filters ask for is matched where they meet (_unit_kernels.py).
"""

from tidings.pipeline.gathering._forms import UNIT
from tidings.pipeline.gathering._source import Source
from tidings.pipeline.gathering._touched_units import LARGE, Touched, touched_units

__all__ = ["LARGE", "UNIT", "Source", "Touched", "touched_units"]
