"""Real brokers under real faults: a mesh of five with default settings, killed and paused under load.

Three publishers send EVENTS_PER_S events a second together. A durable subscriber at each broker wants its share of
them. Clients know all brokers, and change to another when theirs stays away. Each of FAULTS faults (`TIDINGS_FAULTS`)
hits one broker: it is killed (`kill -9`) and started again after .2 to 10 s, stopped for 10 to 14 s, or sometimes for
40 to 55 s, longer than the time after which brokers give each other up.

Printed: what was accepted and never came, came twice, or came to somebody who did not want it (the limit is none); for
each kind of fault, how long after its end all links were up again (the limit is 10 s); and the longest time for which
no event at all was accepted. The exit code is 1 if anything was lost, doubled or wrong.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.live_load import broker_process, free_ports
from tidings.live import Delivery, Network, Tidings, connect, read_network
from tidings.live.operations._query import ask_network

NAMES = ("a", "b", "c", "d", "e")
LINKS = ("ab", "bc", "cd", "de", "ea", "ac", "bd")
FAULTS = int(os.environ.get("TIDINGS_FAULTS", "100"))
SEED = int(os.environ.get("TIDINGS_SEED", "1"))
EVENTS_PER_S = 150
PUBLISHERS = ("a", "c", "e")
KILLS = 0.72
LONG_PAUSES = 0.04
DOWN_S = (0.2, 10.0)
PAUSE_S = (10.0, 14.0)
LONG_PAUSE_S = (40.0, 55.0)
BETWEEN_S = (0.0, 1.5)
LINKS_LIMIT_S = 10.0
SETTLE_S = 120.0
"""Whatever has not come so long after the last fault counts as lost."""


class Mesh:
    """Five broker processes and the faults that happen to them."""

    def __init__(self, directory: Path) -> None:
        self.ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self.path = directory / "network.toml"
        self.path.write_text(self._text(), "utf-8")
        self.network: Network = read_network(self.path)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.faults: Counter[str] = Counter()
        self.back_s: dict[str, float] = {}
        """For each kind of fault: how long after its end all links were up, at most."""

    def _text(self) -> str:
        text = ""
        for name, port in self.ports.items():
            beside = [link[1] for link in LINKS if link[0] == name]
            text += f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{port}"\nneighbours = {beside}\n'
        return text

    @property
    def addresses(self) -> dict[str, str]:
        return {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """All brokers run; what is left at the end is killed."""
        try:
            for name in NAMES:
                self.start(name)
            yield
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()

    def start(self, name: str) -> None:
        self.processes[name] = broker_process(self.path, name)

    async def fault(self, dice: random.Random) -> None:
        """One fault from its begin until all links are up again."""
        name = dice.choice(NAMES)
        process = self.processes[name]
        if dice.random() < KILLS:
            kind = "kill"
            process.kill()
            process.wait()
            await asyncio.sleep(dice.uniform(*DOWN_S))
            self.start(name)
        else:
            is_long = dice.random() < LONG_PAUSES / (1.0 - KILLS)
            kind = "long pause" if is_long else "pause"
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(dice.uniform(*(LONG_PAUSE_S if is_long else PAUSE_S)))
            process.send_signal(signal.SIGCONT)
        await self._answering(name)  # a process that starts has to load its modules before it can have links
        began_s = time.monotonic()
        await self.joined()
        self.faults[kind] += 1
        self.back_s[kind] = max(self.back_s.get(kind, 0.0), time.monotonic() - began_s)

    async def _answering(self, name: str) -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.ports[name])
                writer.close()
                return
            await asyncio.sleep(0.05)

    async def joined(self) -> None:
        """Wait until every broker is ready and hears all its neighbours."""
        while True:
            found = await ask_network(self.network)
            if all(_is_joined(broker) for broker in found):
                return
            await asyncio.sleep(0.05)


def _is_joined(broker: dict[str, Any]) -> bool:
    if not (broker["up"] and broker["ready"]) or broker["absent"]:
        return False
    return all(peer["up"] for peer in broker["neighbours"].values())


class Load:
    """What clients publish and get. Subscriber k of five wants what has `n % 5 = k` or is urgent."""

    def __init__(self) -> None:
        self.published = 0
        self.wanted: dict[int, set[int]] = {}
        self.accepted: set[int] = set()
        self.refused = 0
        self.got: dict[int, Counter[int]] = {k: Counter() for k in range(len(NAMES))}
        self.quiet_s = 0.0
        self._accepted_s = time.monotonic()

    def take(self, k: int, event: Delivery) -> None:
        self.got[k][int(event.attributes["n"])] += 1

    async def publish(self, clients: list[Tidings], dice: random.Random, until: asyncio.Task[None]) -> None:
        """A publisher after the other sends an event, as often as wanted, until the faults are over."""
        period_s, began_s = 1.0 / EVENTS_PER_S, time.monotonic()
        self._accepted_s = began_s
        while not until.done():
            n = self.published
            self.published += 1
            key, urgent = n % len(NAMES), dice.random() < 0.1
            self.wanted[n] = set(range(len(NAMES))) if urgent else {key}
            attributes = {"n": n, "key": key, "urgent": urgent}
            outcome = await clients[n % len(clients)].offer(attributes, payload=bytes(300))
            outcome.add_done_callback(partial(self._ended, n))
            await asyncio.sleep(max(0.0, began_s + (n + 1) * period_s - time.monotonic()))

    def _ended(self, n: int, done: "asyncio.Future[Any]") -> None:
        if done.cancelled() or done.exception() is not None:
            self.refused += 1
            return
        now_s = time.monotonic()
        self.quiet_s, self._accepted_s = max(self.quiet_s, now_s - self._accepted_s), now_s
        self.accepted.add(n)

    def missing(self) -> int:
        return sum(k not in self._receivers(n) for n in self.accepted for k in self.wanted[n])

    def doubled(self) -> int:
        return sum(count - 1 for got in self.got.values() for count in got.values())

    def wrong(self) -> int:
        return sum(k not in self.wanted[n] for k, got in self.got.items() for n in got)

    def _receivers(self, n: int) -> set[int]:
        return {k for k, got in self.got.items() if n in got}


async def _storm(mesh: Mesh, load: Load) -> None:
    dice = random.Random(SEED)

    async def faults() -> None:
        for number in range(FAULTS):
            await asyncio.sleep(dice.uniform(*BETWEEN_S))
            await mesh.fault(dice)
            if sys.stderr.isatty() or number % 10 == 9:
                print(f"{number + 1} of {FAULTS} faults, {len(load.accepted):,} accepted", file=sys.stderr, flush=True)

    await mesh.joined()
    async with contextlib.AsyncExitStack() as stack:
        for k, name in enumerate(NAMES):
            client = await stack.enter_async_context(connect(_from(mesh, name), name=f"s{k}", durable=True))
            await client.subscribe(f"key = {k} OR urgent", name="mine", callback=partial(load.take, k))
        publishers = [
            await stack.enter_async_context(connect(_from(mesh, name), name=f"p{name}", max_in_flight=10_000))
            for name in PUBLISHERS
        ]
        await _known_everywhere(mesh)
        happening = asyncio.create_task(faults())
        await load.publish(publishers, random.Random(SEED + 1), happening)
        await happening
        for publisher in publishers:
            await publisher.flush()
        end_s = time.monotonic() + SETTLE_S
        while load.missing() and time.monotonic() < end_s:
            await asyncio.sleep(0.2)
        await asyncio.sleep(2.0)  # what comes twice may come last


def _from(mesh: Mesh, name: str) -> tuple[str, ...]:
    """The addresses of all brokers, this one first."""
    return tuple(sorted(mesh.addresses.values(), key=lambda address: address != mesh.addresses[name]))


async def _known_everywhere(mesh: Mesh) -> None:
    """Wait until each broker knows the subscriptions of all."""
    while True:
        found = await ask_network(mesh.network)
        if all(broker["up"] and broker["subscriptions_elsewhere"] >= len(NAMES) - 1 for broker in found):
            return
        await asyncio.sleep(0.05)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tidings-") as directory, contextlib.ExitStack() as stack:
        os.environ["XDG_STATE_HOME"] = directory  # durable clients keep their secrets there
        mesh, load = Mesh(Path(directory)), Load()
        stack.enter_context(mesh.running())
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_storm(mesh, load))
    kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(mesh.faults.items()))
    print(f"live_faults: {len(NAMES)} brokers, {len(LINKS)} links, {EVENTS_PER_S} events/s, {FAULTS} faults: {kinds}")
    print(f"{'published':>12}{'accepted':>10}{'refused':>9}{'lost':>6}{'doubled':>9}{'wrong':>7}")
    lost, doubled, wrong = load.missing(), load.doubled(), load.wrong()
    print(f"{load.published:>12,}{len(load.accepted):>10,}{load.refused:>9}{lost:>6}{doubled:>9}{wrong:>7}")
    for kind, worst_s in sorted(mesh.back_s.items()):
        share = worst_s / LINKS_LIMIT_S
        print(
            f"links up again after a {kind}: {worst_s:.2f} s at most, {share:.2f} of the limit of {LINKS_LIMIT_S:g} s"
        )
    print(f"longest time without an acceptance: {load.quiet_s:.2f} s")
    if lost or doubled or wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
