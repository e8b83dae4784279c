"""One driver at a time: a killed watch may leave its JVM behind for a moment, at work on files that a restart replaces.

The JVM ends when it finds that its parent has, which can take seconds. It holds a lock that the operating system gives
back when it ends, however it ends; so a restart waits for that before it writes anything.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tidings.errors import InputError

__all__ = ["sole_driver"]

WAIT_S: Final = 120.0
LOOK_EVERY_S: Final = 0.2


@contextmanager
def sole_driver(spark: SparkSession, place: Path) -> Iterator[None]:
    """Hold the lock in this place from within Spark's JVM; wait for the JVM of a killed watch to give it back."""
    jvm: Any = spark._jvm
    file = jvm.java.io.RandomAccessFile(str(place.absolute()), "rw")
    try:
        until_s = time.monotonic() + WAIT_S
        while file.getChannel().tryLock() is None:
            if time.monotonic() > until_s:
                raise InputError(
                    f"{place}: Spark of a watch that has ended still holds this file; end that process (java), and "
                    "start again"
                )
            time.sleep(LOOK_EVERY_S)
        yield
    finally:
        file.close()  # gives the lock back
