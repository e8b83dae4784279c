"""Ages on real sockets, of real processes, against the truth that the clock of the machine tells (`ages`).

Nothing here depends on how fast the machine is: what is compared with the truth are the errors that deliveries state.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.live import ages
from tests.live.ages import Departures, Seen, Watch
from tests.live.conftest import Place, all_up, run, until
from tests.live.test_processes import pid_of

from tidings.live import DeniedError, Network, connect
from tidings.rehearsal import door, shape_of

LIFETIME_S = 0.5
PAUSE_S = 1.5
SECOND = 10**9
MS = 10**6


class Reader:
    """A subscriber in a process of its own."""

    def __init__(self, place: Place, address: str) -> None:
        self._path = place.directory / "reader.jsonl"
        command = [sys.executable, str(Path(ages.__file__)), address, "60"]
        with self._path.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, start_new_session=True)
        place.processes.append(self.process)

    def is_subscribed(self) -> bool:
        return self._path.stat().st_size > 0

    def seen(self) -> list[Seen]:
        lines = self._path.read_text("utf-8").splitlines(keepends=True)[1:]
        return [Seen(*json.loads(line)) for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("stopped", ["the publisher's broker", "the subscriber's broker", "the subscriber"])
def test_whoever_stands_still_for_longer_than_the_lifetime_hides_no_age(place: Place, stopped: str) -> None:
    """What waits in a buffer of the kernel meanwhile grows older there: it is late, and says so."""

    async def work() -> None:
        network = place.write("a", "b")
        place.start("up", str(network.path))
        await all_up(network)
        reader = Reader(place, place.address("b"))
        await until(reader.is_subscribed)
        pids = {
            "the publisher's broker": pid_of(place, "a"),
            "the subscriber's broker": pid_of(place, "b"),
            "the subscriber": reader.process.pid,
        }
        async with connect(place.address("a"), name="p") as p:
            departures, offered = Departures(), dict[int, asyncio.Future[int]]()

            async def publish(for_s: float) -> None:
                end_s = time.monotonic() + for_s
                while time.monotonic() < end_s:
                    n = len(offered)
                    offered[n] = await departures.offer(p, n, LIFETIME_S)
                    await asyncio.sleep(0.02)

            while not reader.seen():  # until everybody knows of the subscription
                await publish(0.1)
            await publish(0.5)
            os.kill(pids[stopped], signal.SIGSTOP)
            await publish(PAUSE_S)
            os.kill(pids[stopped], signal.SIGCONT)
            await publish(0.5)
            await asyncio.wait(offered.values())
            accepted = {n for n, each in offered.items() if each.exception() is None}
            first = min(seen.n for seen in reader.seen())  # what came before was nobody's
            await until(lambda: {n for n in accepted if n >= first} <= {seen.n for seen in reader.seen()})
            for each in offered.values():
                assert each.exception() is None or isinstance(each.exception(), DeniedError)  # it has expired
        _judge(departures, reader.seen())

    run(work())


def _judge(departures: Departures, deliveries: list[Seen]) -> None:
    lifetime_ns = LIFETIME_S * SECOND
    for seen in deliveries:
        departures.check(seen)
        least_ns, most_ns = departures.true_ns(seen)
        assert seen.late == (seen.age_ns >= lifetime_ns), "the mark goes by the age"
        if seen.late:
            assert most_ns >= lifetime_ns - seen.error_ns, (seen, most_ns)
        else:
            assert least_ns <= lifetime_ns + seen.error_ns, (seen, least_ns)
    assert any(seen.late for seen in deliveries)
    assert any(not seen.late for seen in deliveries)
    longest_ns = max(departures.true_ns(seen)[1] for seen in deliveries)
    assert longest_ns > PAUSE_S * SECOND / 2, "what was there when it stopped has waited"


async def _through(network: Network, place: Place, to_s: float, from_s: float) -> tuple[Departures, list[Seen]]:
    """Events from a publisher at its broker to a subscriber behind a lopsided link, until one states a small error."""
    place.start("up", str(network.path))
    await all_up(network)
    departures = Departures()
    async with (
        door(place.ports["a"], shape_of(delay_s=to_s), shape_of(delay_s=from_s)) as way,
        connect(f"127.0.0.1:{way.port}", name="s") as s,
        connect(place.address("a"), name="p") as p,
    ):
        watched = Watch(s)
        await s.subscribe("n >= 0", callback=watched)
        n = 0
        bound_ns = (to_s + from_s) / 2 * SECOND + 5 * MS
        while len(watched.seen) < 50 or min(seen.error_ns for seen in watched.seen) > bound_ns:
            await departures.offer(p, n)
            n += 1
            await asyncio.sleep(0.02)
    return departures, watched.seen


@pytest.mark.parametrize(("to_ms", "from_ms"), [(5, 60), (60, 5), (20, 20)])
def test_directions_that_differ_make_ages_wrong_by_half_the_difference_at_most(
    place: Place, to_ms: int, from_ms: int
) -> None:
    async def work() -> None:
        departures, deliveries = await _through(place.write("a"), place, to_ms / 1e3, from_ms / 1e3)
        for seen in deliveries:
            departures.check(seen)
            assert seen.error_ns >= (to_ms + from_ms) / 2 * MS, "nobody can know it better"
        best = min(deliveries, key=lambda seen: seen.error_ns)
        least_ns, most_ns = departures.true_ns(best)
        # What the error is more than half of both directions is all that anything else can have added.
        spare_ns = best.error_ns - (to_ms + from_ms) / 2 * MS
        off_ns = (from_ms - to_ms) / 2 * MS
        assert least_ns - off_ns - spare_ns <= best.age_ns <= most_ns - off_ns + spare_ns

    run(work())
