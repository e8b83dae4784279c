"""Gathering: the rows of the large tables brought to the place of their unit, checked and matched, by one shuffle.

Files that fit the contract as they are, which is the usual case, are read by the workers themselves (_direct.py): rows
stay Arrow columns from the file to where they meet (_packing.py), and none becomes a row of Spark's on the way. Files
that do not fit are read, converted and checked by Spark's own expressions (_forms.py) and join the others at the
shuffle. Which rows are bad, and why, is said in one place, `ingest.check_rows`: what the workers find suspect is read
again by it.
"""

from tidings.pipeline.gathering._forms import UNIT, quarantine_columns
from tidings.pipeline.gathering._packing import unpack
from tidings.pipeline.gathering._source import Source
from tidings.pipeline.gathering._touching import LARGE, Touched, touched_units

__all__ = ["LARGE", "UNIT", "Source", "Touched", "quarantine_columns", "touched_units", "unpack"]
