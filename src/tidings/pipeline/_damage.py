"""Files whose footer is whole and whose data is not: found when they are read, and named then.

Looking through all data before a run would take as long as the run. So a damaged page ends it, with the last answer
left standing; the message says which file it is, which Spark's own does somewhere in the middle.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote

from tidings.errors import InputError

__all__ = ["naming_damaged_files"]

_READING: Final = re.compile(r"FAILED_READ_FILE[^\n]*?reading file (?:file:/*(?=/))?(\S+?)\.?\s+SQLSTATE")


@contextmanager
def naming_damaged_files() -> Iterator[None]:
    """Turn Spark's failure to read a file into an InputError; any other one passes."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        found = _READING.search(str(error))
        if found is None:
            raise
        raise InputError(
            f"{unquote(found[1])}: its footer can be read, but its data is damaged; bring a whole copy, or put a _ in "
            "front of its name to leave it out"
        ) from error
