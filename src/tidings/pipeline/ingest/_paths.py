"""Paths on their way to Spark and back.

Spark takes a path for a pattern, and a path without a scheme for one of the cluster's default file system; what it
reports of a file is a percent-encoded address. Here both ways are undone, so that users see the path they know.
"""

import re

from pyspark.sql import Column
from pyspark.sql import functions as f

__all__ = ["shown_path", "spark_path"]


def spark_path(path: str) -> str:
    """The path for Spark's readers: exactly this file, not a pattern; on this machine if it has no scheme."""
    escaped = re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
    return escaped if "://" in path else f"file:{escaped}"


def shown_path(file: Column) -> Column:
    """The file that a row came from, as people write it."""
    return f.url_decode(f.replace(f.regexp_replace(file, "^file:/+", "/"), f.lit("+"), f.lit("%2B")))
