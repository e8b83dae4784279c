"""The data pipeline on Spark: what a network did in, what can be known about it out (docs/reference/pipeline.md).

Names load on first use: importing this package needs no Spark.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.pipeline._job import run_pipeline
    from tidings.pipeline._options import PipelineOptions
    from tidings.pipeline._result import PipelineResult, SubscriberScore, TooManyBadRows
    from tidings.pipeline._session import open_session
    from tidings.pipeline._store import table_paths
    from tidings.pipeline.arrow import run_in_process

__all__ = [
    "PipelineOptions",
    "PipelineResult",
    "SubscriberScore",
    "TooManyBadRows",
    "open_session",
    "run_in_process",
    "run_pipeline",
    "table_paths",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "PipelineOptions": "_options",
        "PipelineResult": "_result",
        "SubscriberScore": "_result",
        "TooManyBadRows": "_result",
        "open_session": "_session",
        "run_in_process": "arrow",
        "run_pipeline": "_job",
        "table_paths": "_store",
    },
)
