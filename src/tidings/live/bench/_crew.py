"""The teams of a run: one in this process, or several in processes of their own.

One Python process of clients may be slower than the broker that it measures. With several processes, clients are dealt
out in turn, and every process counts for itself.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final

from tidings.errors import TidingsError
from tidings.live.bench._figures import Figures, Tally, figures
from tidings.live.bench._load import Load
from tidings.live.bench._team import SPREAD_S, Team

__all__ = ["run_bench"]

_HEAD_START_S: Final = 0.2
_TICK_S: Final = 0.2


def run_bench(load: Load, *, processes: int = 1, progress: Callable[[float], None] = lambda _: None) -> Figures:
    """Put a load on a network and return its figures; `progress` gets the share of the time that has passed."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(load, processes, progress))


async def _run(load: Load, processes: int, progress: Callable[[float], None]) -> Figures:
    subscribers = len(load.filters)
    shares = [
        (list(range(part, load.publishers, processes)), list(range(part, subscribers, processes)))
        for part in range(processes)
    ]
    teams: list[Team] | list[_FarTeam] = (
        [Team(load, *shares[0])] if processes == 1 else [_FarTeam(load, *share) for share in shares]
    )
    try:
        await asyncio.gather(*(team.join() for team in teams))
        await asyncio.sleep(SPREAD_S)
        begin_ns = time.monotonic_ns() + round(_HEAD_START_S * 1e9)
        watching = asyncio.create_task(_watch(begin_ns, load.seconds, progress))
        accepted = await asyncio.gather(*(team.publish(begin_ns) for team in teams))
        watching.cancel()
        totals = [sum(counts) for counts in zip(*accepted, strict=True)]
        tally = Tally.empty(load)
        for found in await asyncio.gather(*(team.settle(totals) for team in teams)):
            tally.add(found)
    finally:
        await asyncio.gather(*(team.leave() for team in teams), return_exceptions=True)
    return figures(load, tally)


async def _watch(begin_ns: int, seconds: float, progress: Callable[[float], None]) -> None:
    while True:
        passed_s = (time.monotonic_ns() - begin_ns) * 1e-9
        progress(min(max(passed_s / seconds, 0.0), 1.0))
        await asyncio.sleep(_TICK_S)


class _FarTeam:
    """A team in a process of its own; requests go through a pipe, one at a time."""

    def __init__(self, load: Load, publishers: list[int], subscribers: list[int]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, load, publishers, subscribers), daemon=True)
        self._process.start()
        theirs.close()
        self._thread = ThreadPoolExecutor(1)

    async def join(self) -> None:
        await self._ask("join")

    async def publish(self, begin_ns: int) -> list[int]:
        accepted: list[int] = await self._ask("publish", begin_ns)
        return accepted

    async def settle(self, accepted: list[int]) -> Tally:
        tally: Tally = await self._ask("settle", accepted)
        return tally

    async def leave(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.terminate()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._process.join)
        self._thread.shutdown(wait=False)

    async def _ask(self, what: str, *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._asked, what, given)

    def _asked(self, what: str, given: tuple[Any, ...]) -> Any:
        try:
            self._pipe.send((what, given))
            answer = self._pipe.recv()
        except (OSError, EOFError):
            raise TidingsError("a process of the bench has ended early") from None
        if isinstance(answer, Exception):
            raise TidingsError(str(answer))
        return answer


def _serve(pipe: Pipe, load: Load, publishers: list[int], subscribers: list[int]) -> None:
    """The other end of the pipe."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_obey(pipe, Team(load, publishers, subscribers)))


async def _obey(pipe: Pipe, team: Team) -> None:
    asks: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
        "join": team.join,
        "publish": team.publish,
        "settle": team.settle,
    }
    while True:
        try:
            what, given = await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        except (EOFError, OSError):
            return
        try:
            answer = await asks[what](*given)
        except TidingsError as error:
            answer = TidingsError(str(error))  # other exceptions may not survive pickling
        pipe.send(answer)
