"""What a second broker process brings on a machine with two processors, and what an event costs that has to cross.

Four publishers, each with its own subscribers (1, 5 or 25), events of 1 kB that all of them want, with buffering. The
clients are those of `live`, all in this process. Beside each other:

- *one process*: everybody is at one broker;
- *together*: two brokers with a link, and each publisher is at the broker of its subscribers;
- *spread*: the same two brokers, and every second subscriber of each publisher is at the other one, as if clients were
  placed without regard to what they want. With 1 subscriber two of the four publishers have theirs at the other broker.

The clients need a processor too, so events per second show what this machine can do with all of that on it. What the
brokers alone could do follows from their processor time: with a processor for each, a network goes as fast as the
process that spends most on an event. `capacity` is that, and the ratio is to one process.
"""

import asyncio
import os
import time
from typing import NamedTuple

import uvloop

from benchmarks.live import PAYLOAD_BYTES, WINDOW, _Publisher, _Subscriber
from benchmarks.live_load import brokers, free_ports, processor_s
from tidings.protocol import wire

PUBLISHERS = 4
FAN_OUTS = (1, 5, 25)
SECONDS = float(os.environ.get("TIDINGS_SECONDS", "4"))
NAMES = ("a", "b")


class Run(NamedTuple):
    """What one placement showed: events per second, and the processor time of each process for an event."""

    events_per_s: float
    cpu_us: tuple[float, ...]

    @property
    def capacity_per_s(self) -> float:
        """How many events per second the processes could carry with a processor each."""
        return 1e6 / max(self.cpu_us)


class _Feed(_Publisher):
    """Publishes events of its own topic, as many as the window allows."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.name = f"publisher-{number}"
        topic: dict[str, int | float | str | bool] = {"topic": f"t{number}"}
        self._contents = [wire.encode_content(wire.Content(topic, b"", bytes(PAYLOAD_BYTES)))] * len(self._contents)


async def _measure(homes: list[int], elsewhere: list[int], fan_out: int, pids: list[int]) -> Run:
    """By publisher: the port of its broker, and that of its second, fourth, ... subscriber."""
    loop = asyncio.get_running_loop()
    feeds = [_Feed(number) for number in range(PUBLISHERS)]
    readers = []
    for number in range(PUBLISHERS):
        for place in range(fan_out):
            # With one subscriber each, those of every second publisher of a broker are elsewhere.
            is_elsewhere = (place if fan_out > 1 else number // 2) % 2
            port = (elsewhere if is_elsewhere else homes)[number]
            readers.append((_Subscriber(f"s{number}-{place}", f"topic = 't{number}'"), port))
    for client, port in (*readers, *zip(feeds, homes, strict=True)):
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
        await client.is_ready
    await asyncio.sleep(2.0)  # until each broker knows what is wanted at the other one
    for feed in feeds:
        feed.publish(WINDOW)
    await asyncio.sleep(2.0)  # what is done once
    events = sum(feed.acknowledged for feed in feeds)
    used_s, began_s = [processor_s(pid) for pid in pids], time.perf_counter()
    await asyncio.sleep(SECONDS)
    took_s = time.perf_counter() - began_s
    used_s = [processor_s(pid) - before for pid, before in zip(pids, used_s, strict=True)]
    events = sum(feed.acknowledged for feed in feeds) - events
    for feed in feeds:
        feed.is_free = False
    return Run(events / took_s, tuple(1e6 * each / events for each in used_s))


def _run(processes: int, fan_out: int, *, is_spread: bool) -> Run:
    ports = dict(zip(NAMES[:processes], free_ports(processes), strict=True))
    text = f"[limits]\nwindow = {WINDOW}\n"
    for place, (name, port) in enumerate(ports.items()):
        neighbours = ", ".join(f'"{other}"' for other in [*ports][place + 1 :])
        text += f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{port}"\nneighbours = [{neighbours}]\n'
    at = [*ports.values()]
    homes = [at[number % processes] for number in range(PUBLISHERS)]
    others = [at[(number + 1) % processes] for number in range(PUBLISHERS)]
    with brokers(text, ports) as found, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        pids = [process.pid for process in found.values()]
        return runner.run(_measure(homes, others if is_spread else homes, fan_out, pids))


def main() -> None:
    print(f"live_cores: {PUBLISHERS} publishers, 1 kB, with buffering, {SECONDS:g} s")
    print(f"{'subscribers of each':>20}{'placed':>14}{'events/s':>10}{'us/event of each process':>26}{'capacity':>10}")
    for fan_out in FAN_OUTS:
        alone = _run(1, fan_out, is_spread=False)
        for name, run in (
            ("one process", alone),
            ("together", _run(2, fan_out, is_spread=False)),
            ("spread", _run(2, fan_out, is_spread=True)),
        ):
            each = " ".join(f"{us:.1f}" for us in run.cpu_us)
            ratio = run.capacity_per_s / alone.capacity_per_s
            print(f"{fan_out:>20}{name:>14}{run.events_per_s:>10,.0f}{each:>26}{ratio:>9.2f}x", flush=True)


if __name__ == "__main__":
    main()
