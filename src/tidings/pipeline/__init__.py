"""The data pipeline on Spark: what a network did in, what can be known about it out (docs/reference/pipeline.md).

Names load on first use: importing this package needs no Spark. What does is an error with the remedy without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.pipeline._job import run_pipeline
    from tidings.pipeline._options import PipelineOptions
    from tidings.pipeline._places import local_path
    from tidings.pipeline._result import PipelineResult, SubscriberScore, TooManyBadRows, count_bad
    from tidings.pipeline._run_store import table_paths
    from tidings.pipeline._session import open_session, require_pyspark
    from tidings.pipeline.arrow import run_in_process
    from tidings.pipeline.source import TidingsSource

__all__ = [
    "PipelineOptions",
    "PipelineResult",
    "SubscriberScore",
    "TidingsSource",
    "TooManyBadRows",
    "count_bad",
    "local_path",
    "open_session",
    "require_pyspark",
    "run_in_process",
    "run_pipeline",
    "table_paths",
]

_load, __dir__ = lazily(__name__)

_ROOMS = ("interest", "profiles", "scores")
"""Packages whose `of` takes DataFrames and gives DataFrames."""


def __getattr__(name: str) -> Any:
    try:
        return import_module(f"{__name__}.{name}") if name in _ROOMS else _load(name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("pyspark"):
            raise
        from tidings.errors import ConfigurationError
        from tidings.pipeline._session import require_pyspark

        require_pyspark()
        raise ConfigurationError(
            f"tidings.pipeline.{name} needs a later PySpark ({error}): pip install --upgrade 'tidings[spark]'"
        ) from error
