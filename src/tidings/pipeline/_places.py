"""Where results go: paths on this machine, and addresses of file systems that Spark can write to.

A plan and a page are written by this process, so their places are paths; an address (``s3a://...``) would become a
folder of that name here. Tables that Spark writes by itself may go to any address that it is set up for. Both are found
out before anything is computed. Runs and watches go through a storage (_storage.py).
"""

import re
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidings.errors import InputError
from tidings.pipeline._session import cause_in_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["local_path", "require_writable", "spark_place"]

_ADDRESS: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<rest>.*)")  # a Path has one slash of the two


def local_path(place: str | PathLike[str], *, purpose: str = "written to") -> Path:
    """The path of a place on this machine (`file:///a/b` is one); an InputError if it is elsewhere."""
    found = _ADDRESS.fullmatch(fspath(place))
    if found is None:
        return Path(place)
    if found["scheme"].lower() != "file":
        raise InputError(
            f"{found['scheme']}://{found['rest']}: only a path on this machine can be {purpose}; give one, and mount "
            "the store there or copy the results to it"
        )
    return Path("/", found["rest"])


def spark_place(place: str | PathLike[str]) -> str:
    """A place as Spark writes to it; without a scheme it is on this machine, whatever a cluster's own default is."""
    found = _ADDRESS.fullmatch(fspath(place))
    if found is None or found["scheme"].lower() == "file":
        return f"file:{local_path(place).absolute()}"
    return fspath(place).rstrip("/")


def require_writable(spark: "SparkSession", place: str) -> None:
    """An InputError if Spark knows no file system for this place (as `spark_place` has it), or cannot reach it."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if place.startswith("file:"):
        return
    try:
        # Whoever can look there can, as a rule, write there; a plan is analysed without a job.
        spark.read.format("binaryFile").load(place).schema  # noqa: B018
    except (PySparkException, Py4JError) as error:
        if isinstance(error, PySparkException) and error.getCondition() == "PATH_NOT_FOUND":
            return
        raise InputError(
            f"{place}: Spark cannot write there: {cause_in_jvm(error)}; give a path on this machine, or set Spark up "
            "for such addresses (docs/guide/spark-cluster.md)"
        ) from error
