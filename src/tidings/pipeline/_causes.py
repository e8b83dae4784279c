"""What went wrong in the JVM, out of the pages that Spark and Py4J wrap it in."""

import re
from typing import Final

__all__ = ["cause_in_jvm"]

_THROWN: Final = re.compile(r": [\w.$]+(Exception|Error): ")


def cause_in_jvm(error: Exception) -> str:
    """The exception at the bottom, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    thrown = [line.removeprefix(": ") for line in lines if _THROWN.match(line)]
    return (causes[-1:] or thrown or lines or [type(error).__name__])[0]
