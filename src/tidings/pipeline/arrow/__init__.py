"""The engine `arrow`: a batch run in one process, on PyArrow, without a JVM (docs/decisions/0044-engine-arrow.md)."""

from tidings.pipeline.arrow._job import run_in_process

__all__ = ["run_in_process"]
