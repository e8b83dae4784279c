"""The data pipeline on Spark: what a network did in, what can be known about it out (docs/reference/pipeline.md).

Names load on first use: importing this package needs no Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.pipeline._job import PipelineOptions, run_pipeline
    from tidings.pipeline._result import PipelineResult, SubscriberScore, TooManyBadRows
    from tidings.pipeline._session import open_session

__all__ = [
    "PipelineOptions",
    "PipelineResult",
    "SubscriberScore",
    "TooManyBadRows",
    "open_session",
    "run_pipeline",
]

_HOMES = {
    "PipelineOptions": "_job",
    "PipelineResult": "_result",
    "SubscriberScore": "_result",
    "TooManyBadRows": "_result",
    "open_session": "_session",
    "run_pipeline": "_job",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
