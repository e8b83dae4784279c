"""Jobs of an experiment in processes of their own: one for each core, unless told otherwise.

They are spawned, because the compiler's threads do not survive a fork.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

__all__ = ["in_processes", "worker_processes"]

Job = TypeVar("Job")
Found = TypeVar("Found")


def worker_processes(workers: int | None) -> ProcessPoolExecutor:
    """A pool to be used in a `with`."""
    return ProcessPoolExecutor(workers or os.cpu_count(), mp_context=get_context("spawn"))


def in_processes(run: Callable[[Job], Found], jobs: Sequence[Job], workers: int | None) -> Iterator[Found]:
    """What `run` finds for each job, in their order; with one worker in this process."""
    if workers == 1:
        yield from map(run, jobs)
        return
    with worker_processes(workers) as pool:
        yield from pool.map(run, jobs)
