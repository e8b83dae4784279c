"""One broker's part in `radio`, in a process of its own: the broker, its link, its publisher and its subscribers.

`python -m benchmarks.radio_player`, with a `Job` as a line of JSON on standard input. It starts the broker, lets some
events of each class through a free link, and prints `ready`, or why it cannot. The next line says when the replay
begins, by the clock that all processes of this machine share. In the end it prints a `Record`.
"""

import asyncio
import contextlib
import sys
import time

import msgspec
import uvloop

from benchmarks.radio_link import PACKET_BYTES, Direction, radio_link, read_trace
from benchmarks.radio_load import CLASSES, DRAIN_S, Event, events_of
from benchmarks.radio_peers import BROKERS, MissingPeerError, Stage

__all__ = ["Job", "Record", "capacity"]

WARM_EVENTS = 50
WARM_S, PATIENCE_S = 3.0, 120.0


class Job(msgspec.Struct, frozen=True):
    """What one process plays."""

    name: str
    trace: str
    begin_s: float
    length_s: float
    back: str = ""
    """A recording of the other direction; none: it is free."""


class Record(msgspec.Struct, frozen=True):
    """What came of it: by the number of an event when it came, in seconds from the begin."""

    came_s: dict[int, float]
    used: int
    """How many of the recorded moments carried something."""
    carried_bytes: int
    """How much crossed the link to the subscribers in the run."""
    lateness_p99_s: float
    """By how much later than it should a packet arrived, because the machine was busy."""
    behind_p99_s: float
    """By how much later than it should an event was published."""


def capacity(job: Job) -> tuple[list[float], list[Event]]:
    """The moments of the direction to the subscribers, and the events."""
    down = read_trace(job.trace, begin_s=job.begin_s, length_s=job.length_s + DRAIN_S)
    in_run = sum(moment_s < job.length_s for moment_s in down)
    return down, events_of(in_run * PACKET_BYTES / job.length_s, job.length_s)


def _back(job: Job) -> Direction:
    """The other direction: free but for the delay, unless a recording of it is named."""
    whole_s = job.length_s + DRAIN_S
    moments_s = read_trace(job.back, begin_s=job.begin_s, length_s=whole_s) if job.back else None
    return Direction(moments_s, length_s=whole_s)


def main() -> None:
    """Play one broker's part."""
    job = msgspec.json.decode(sys.stdin.readline(), type=Job)
    ports, make = BROKERS[job.name]
    try:
        with ports() as (near, far), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            record = runner.run(_play(job, make(), near, far))
    except MissingPeerError as missing:
        print(missing, flush=True)
        return
    print(msgspec.json.encode(record).decode(), flush=True)


async def _play(job: Job, stage: Stage, near: int, far: int) -> Record:
    down, events = capacity(job)
    whole_s = job.length_s + DRAIN_S
    directions = _back(job), Direction(down, length_s=whole_s)
    async with contextlib.AsyncExitStack() as stack:
        link = await stack.enter_async_context(radio_link(far, *directions))
        await stage.enter(stack, near, link.port)
        await _warm_up(stage)
        print("ready", flush=True)
        begin_s = float(await asyncio.to_thread(sys.stdin.readline))
        stage.came_s.clear()
        link.begin(begin_s)
        link.lateness_s.clear()
        before_bytes = directions[1].carried_bytes
        behind_s = []
        for event in events:
            if (left_s := begin_s + event.at_s - time.monotonic()) > 0.0:
                await asyncio.sleep(left_s)
            behind_s.append(time.monotonic() - begin_s - event.at_s)
            await stage.publish(event.number, event.kind)
        await asyncio.sleep(max(begin_s + whole_s - time.monotonic(), 0.0))
        came_s = {number: at_s - begin_s for number, at_s in sorted(stage.came_s.items()) if number >= 0}
        carried_bytes = directions[1].carried_bytes - before_bytes
        return Record(came_s, directions[1].used, carried_bytes, _p99(link.lateness_s), _p99(behind_s))


async def _warm_up(stage: Stage) -> None:
    """Events of each class, until some of each have come: brokers that compile or connect late have done so."""
    end_s, wait_s = time.monotonic() + PATIENCE_S, WARM_S
    await asyncio.sleep(1.0)
    while time.monotonic() < end_s:
        stage.came_s.clear()
        for turn in range(WARM_EVENTS):
            for kind in range(len(CLASSES)):
                await stage.publish(-1 - turn * len(CLASSES) - kind, kind)
                await asyncio.sleep(0.005)
        await asyncio.sleep(wait_s)
        if len({-1 - number for number in stage.came_s}) > WARM_EVENTS * len(CLASSES) // 2:
            return
    raise RuntimeError("nothing comes through the link")


def _p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100] if values else 0.0


if __name__ == "__main__":
    main()
