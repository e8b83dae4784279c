"""Jobs of an experiment in processes of their own: one for each core unless given.

They are spawned, because the compiler's threads do not survive a fork. A single worker is this process: nothing has to
be started, and nothing compiled or loaded twice.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, ParamSpec, TypeVar

__all__ = ["in_processes", "worker_processes"]

Job = TypeVar("Job")
Found = TypeVar("Found")
Given = ParamSpec("Given")


class _ThisProcess(Executor):
    """Does what it is given while it is waited for."""

    def submit(self, fn: Callable[Given, Found], /, *args: Given.args, **kwargs: Given.kwargs) -> Future[Found]:
        done: Future[Found] = Future()
        done.set_result(fn(*args, **kwargs))
        return done

    def map(self, fn: Callable[..., Found], *iterables: Iterable[Any], **_: Any) -> Iterator[Found]:
        return map(fn, *iterables)


def worker_processes(workers: int | None) -> Executor:
    """A pool to be used in a `with`."""
    if workers == 1:
        return _ThisProcess()
    return ProcessPoolExecutor(workers or os.cpu_count(), mp_context=get_context("spawn"))


def in_processes(run: Callable[[Job], Found], jobs: Sequence[Job], workers: int | None) -> Iterator[Found]:
    """What `run` finds for each job, in their order."""
    with worker_processes(workers) as pool:
        yield from pool.map(run, jobs)
