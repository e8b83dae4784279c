"""Real processes: killed, stopped, out of disk; nothing accepted is lost, nothing comes twice, nobody stays behind."""

import asyncio
import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import Place, all_up, run, until

from tidings.live import Network, connect
from tidings.live.operations._query import ask_network
from tidings.live.storage._store import Store
from tidings.protocol.broker._held import Held
from tidings.protocol.node import sealed


def pid_of(place: Place, broker: str) -> int:
    """The process that runs a broker now."""
    started = [line for line in place.logs() if line["event"] == "broker started" and line["broker"] == broker]
    return int(started[-1]["pid"])


def is_alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has asked after does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def kill_some(place: Place, network: Network, kills: int, dice: random.Random) -> None:
    """Kill a broker at random, again and again, each time when it has come back."""
    for _ in range(kills):
        await asyncio.sleep(dice.uniform(0.0, 0.8))
        victim = dice.choice(sorted(network.brokers))
        os.kill(pid_of(place, victim), signal.SIGKILL)
        await asyncio.sleep(0.2)
        await all_up(network)


async def kills_under_load(place: Place, kills: int, seed: int, processes: tuple[str, ...]) -> None:
    network = place.write(*processes)
    supervisor = place.start("up", str(network.path))
    await all_up(network)
    got: Counter[Any] = Counter()
    accepted: list[int] = []
    first, last = processes[0], processes[-1]
    async with (
        connect(place.address(first), name="p", max_in_flight=64) as p,
        connect(place.address(last), name="s") as s,
    ):
        await s.subscribe("n >= 0", callback=lambda event: got.update([event.attributes["n"]]))
        await asyncio.sleep(1.0)
        killing = asyncio.create_task(kill_some(place, network, kills, random.Random(seed)))
        n = 0
        while not killing.done():
            outcome = await p.offer({"n": n}, payload=bytes(300))
            outcome.add_done_callback(lambda done, n=n: accepted.append(n) if done.exception() is None else None)
            n += 1
            await asyncio.sleep(0.002)
        await killing
        await p.flush()
        await asyncio.sleep(0)
        await until(lambda: len(got) >= len(accepted))
        await asyncio.sleep(0.5)
    assert len(accepted) == n
    assert sorted(got) == sorted(accepted), "nothing that was accepted is lost"
    assert set(got.values()) == {1}, "nothing comes twice"
    supervisor.terminate()
    assert supervisor.wait(300) == 0
    pids = [line["pid"] for line in place.logs() if line["event"] == "broker started"]
    assert len(pids) == len(processes) + kills
    assert not any(is_alive(pid) for pid in pids)


def test_brokers_that_are_killed_under_load_lose_nothing_and_repeat_nothing(place: Place) -> None:
    run(kills_under_load(place, 4, 7, ("a", "b")))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2))
def test_a_hundred_kills(place: Place, seed: int) -> None:
    run(kills_under_load(place, 50, seed, ("a", "b", "c")))


def test_what_is_accepted_while_a_broker_is_missed_for_longer_than_the_timeout_arrives(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", timeout_s=1.5)
        place.start("up", str(network.path))
        await all_up(network)
        got: list[Any] = []
        async with connect(place.address("a"), name="p") as p, connect(place.address("b"), name="s") as s:
            await s.subscribe("n >= 0", callback=lambda event: got.append(event.attributes["n"]))
            await asyncio.sleep(0.7)
            stopped = pid_of(place, "b")
            os.kill(stopped, signal.SIGSTOP)
            for n in range(60):
                await p.publish({"n": n})
                await asyncio.sleep(0.1)  # four time-outs
            os.kill(stopped, signal.SIGCONT)
            await until(lambda: len(got) >= 60)
        assert sorted(got) == list(range(60))

    run(work())


@contextlib.contextmanager
def small_file_system(directory: Path, size_mb: int) -> Iterator[None]:
    """A file system of so many megabytes in a directory, if this machine lets us have one."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(directory)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(path: Path) -> None:
    """Take all the room that there is in a file system."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4_096)):
            pass


def test_a_file_system_that_fills_and_empties_costs_time_and_no_event(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        supervisor = place.start("up", str(network.path))
        await all_up(network)
        got: Counter[Any] = Counter()

        def times(event: str) -> int:
            return [logged["event"] for logged in place.logs()].count(event)

        async with connect(place.address("a"), name="p") as p, connect(place.address("a"), name="s") as s:
            await s.subscribe("n >= 0", callback=lambda event: got.update([event.attributes["n"]]))
            await p.publish({"n": 1_000_000})  # what it says of itself is on disk
            outcomes: list[asyncio.Future[Any]] = []

            async def offer_without_end() -> None:
                while True:
                    outcomes.append(await p.offer({"n": len(outcomes)}, payload=bytes(50_000)))
                    await asyncio.sleep(0.01)

            for _ in range(3):
                before = times("store full")
                fill(place.directory / "store" / "filler")
                # The file may have free pages of its own: only more than they hold shows that the disk is full.
                offering = asyncio.create_task(offer_without_end())
                await until(lambda: times("store full") > before)  # noqa: B023
                offering.cancel()
                (place.directory / "store" / "filler").unlink()
                await asyncio.gather(*outcomes)
                # It may have had a little room and been full again meanwhile.
                await until(lambda: times("store has room again") == times("store full"))
            await until(lambda: len(got) == len(outcomes) + 1)
        assert set(got.values()) == {1}
        supervisor.terminate()
        assert supervisor.wait(300) == 0

    with small_file_system(place.directory / "store", 4):
        try:
            run(work())
        finally:
            place.end()


def test_a_broker_that_is_stopped_for_a_while_is_bypassed_or_waited_for_and_goes_on(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", "c", links=("a-b", "b-c", "a-c"))
        place.start("up", str(network.path))
        await all_up(network)
        got: list[Any] = []
        async with connect(place.address("a"), name="p") as p, connect(place.address("c"), name="s") as s:
            await s.subscribe("n >= 0", callback=lambda event: got.append(event.attributes["n"]))
            await asyncio.sleep(0.7)
            stopped = pid_of(place, "c")
            os.kill(stopped, signal.SIGSTOP)
            for n in range(50):
                await p.publish({"n": n})
            await asyncio.sleep(1.0)
            assert not got
            os.kill(stopped, signal.SIGCONT)
            await until(lambda: len(got) == 50)
            await asyncio.sleep(0.3)
            assert sorted(got) == list(range(50))

    run(work())


def test_no_broker_outlives_its_supervisor(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        supervisor = place.start("up", str(network.path))
        await all_up(network)
        pids = [pid_of(place, name) for name in "ab"]
        supervisor.kill()
        supervisor.wait()
        await until(lambda: not any(is_alive(pid) for pid in pids))

    run(work())


def small_files() -> None:
    """No file of this process grows beyond 2 MB: a disk that is as good as full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))


def test_a_full_disk_acknowledges_nothing_and_goes_on_when_there_is_room(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        process = place.start("broker", str(network.path), limit=small_files)
        await all_up(network)
        got: Counter[Any] = Counter()
        async with (
            connect(place.address("a"), name="p") as p,
            connect(place.address("a"), name="s", durable=True) as s,
        ):
            await s.subscribe("n >= 0", name="all", callback=lambda event: got.update([event.attributes["n"]]))
            s._driver.call(s._machine.pause)  # so that events stay in the store
            outcomes = [await p.offer({"n": n}, payload=bytes(20_000)) for n in range(200)]
            await until(lambda: any(line["event"] == "store full" for line in place.logs()))
            await asyncio.sleep(1.5)
            assert sum(outcome.done() for outcome in outcomes) < 150
            assert (await ask_network(network))[0]["store"]["full"]
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            await asyncio.gather(*outcomes)
            s._driver.call(s._machine.resume)
            await until(lambda: len(got) == 200)
            assert set(got.values()) == {1}
        process.terminate()
        assert process.wait(300) == 0

    run(work())


def test_a_damaged_store_ends_the_broker_with_a_clear_error(place: Place) -> None:
    network = place.write("a")
    folder = network.store_of("a")
    store = Store.open(folder)
    store.commit({f"event/{n}": bytes(100) for n in range(2_000)})
    store.close()
    file = folder / "data.mdb"
    file.write_bytes(file.read_bytes()[:8_192])
    process = place.start("broker", str(network.path))
    assert process.wait(300) == 1
    text = (place.directory / "process-0.log").read_text()
    assert f"store {folder} is damaged" in text
    assert "Restore it from a copy, or move it away" in text


def filled_store(network: Network, name: str, count: int) -> None:
    """A store with events for a client that is away, as the broker itself would have left it."""
    now_ns = time.time_ns()
    store = Store.open(network.store_of(name))
    writes = {"ready": b""}
    terms = ((600 * 10**9, 1.0),)
    for number in range(count):
        held = Held(
            ("p", 1, number),
            root=name,
            departure_ns=now_ns,
            since_ns=now_ns,
            lifetime_ns=600 * 10**9,
            size_bytes=1_000,
            hops=0,
            content=bytes(1_000),
        ).alone()
        held.take_on_local({"s": {"all": terms}})
        writes[f"event/1/{number}/p"] = held.record()
    store.commit({key: sealed(key, value) for key, value in writes.items()})
    store.close()


def test_a_restart_with_buffered_events_serves_them(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        filled_store(network, "a", 2_000)
        place.start("up", str(network.path))
        await all_up(network)
        assert (await ask_network(network))[0]["stored"] == 2_000

    run(work())


def test_two_brokers_cannot_have_one_store_or_one_port(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        first = place.start("broker", str(network.path))
        await all_up(network)
        second = subprocess.run(
            [*first.args, "--name", "a"],  # type: ignore[list-item]
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert second.returncode == 1
        assert "is in use by another process" in second.stderr
        first.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert first.wait(300) == 0

    run(work())


def resident_mb(pid: int) -> float:
    """How much memory a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


@pytest.mark.full
def test_memory_stays_flat_under_steady_load(place: Place) -> None:
    """What was delivered is remembered for a minute after it has expired; after that nothing may grow."""

    async def work() -> None:
        network = place.write("a", more='[limits]\nlifetime = "2 s"\n')
        process = place.start("broker", str(network.path))
        await all_up(network)
        sizes_mb: list[float] = []
        async with connect(place.address("a"), name="p") as p, connect(place.address("a"), name="s") as s:
            got: Counter[str] = Counter()
            await s.subscribe("n >= 0", callback=lambda _: got.update(["events"]))
            began_s, n = time.monotonic(), 0
            while (passed_s := time.monotonic() - began_s) < 200.0:
                await p.offer({"n": n}, payload=bytes(500), lifetime_s=2.0)
                n += 1
                await asyncio.sleep(0.004)
                if passed_s > 80.0 + 10.0 * len(sizes_mb):
                    sizes_mb.append(resident_mb(process.pid))
            assert got["events"] > 0.95 * n
        assert max(sizes_mb[-3:]) < 1.03 * max(sizes_mb[:3]), sizes_mb
        process.terminate()
        assert process.wait(300) == 0

    run(work())
