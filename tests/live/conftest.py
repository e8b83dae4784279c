"""Networks for tests: free ports, a directory of their own, brokers in this process or as processes of their own."""

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidings.live import BrokerNode, Network, read_network
from tidings.live.operations._logs import Log
from tidings.live.operations._query import ask_network
from tidings.rehearsal._ports import free_ports

RUN = [sys.executable, "-c", "from tidings.cli import main; main()"]
QUICK = 'ping = "100 ms"\nsilence = "600 ms"\nrefresh = "500 ms"\ndrain = "1 s"\n'
PATIENCE_S = 300.0
"""How long a test waits for what it expects: this ends a test that hangs; how long things take is not asserted."""
LONGEST_TEST_S = 800.0


class Place:
    """A directory with a network file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports: dict[str, int] = {}
        self.processes: list[subprocess.Popen[bytes]] = []

    def write(
        self, *names: str, links: tuple[str, ...] = (), more: str = "", network: str = "", timeout_s: float = 5.0
    ) -> Network:
        """Brokers of these names, in a row unless links ("a-b") say otherwise."""
        ports = free_ports(len(names))
        self.ports = dict(zip(names, ports, strict=True))
        pairs = [tuple(link.split("-")) for link in links] or list(pairwise(names))
        text = f'[network]\ntimeout = "{timeout_s} s"\n{QUICK}{network}\n{more}\n'
        for name in names:
            beside = msgspec.json.encode([other for one, other in pairs if one == name]).decode()
            text += f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{self.ports[name]}"\nneighbours = {beside}\n'
        path = self.directory / "network.toml"
        path.write_text(text, "utf-8")
        return read_network(path)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def secret(self, name: str, text: str) -> Path:
        """A file that only its owner can read."""
        path = self.directory / name
        path.touch(0o600)
        path.write_text(f"{text}\n", "utf-8")
        return path

    def start(self, *arguments: str, limit: Callable[[], None] | None = None) -> subprocess.Popen[bytes]:
        """A `tidings` process; its log goes to a file."""
        log = (self.directory / f"process-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen(
            [*RUN, *arguments], stdout=subprocess.DEVNULL, stderr=log, start_new_session=True, preexec_fn=limit
        )
        log.close()
        self.processes.append(process)
        return process

    def logs(self) -> list[dict[str, Any]]:
        """What all processes have logged, line by line."""
        lines = b"".join(path.read_bytes() for path in sorted(self.directory.glob("process-*.log"))).splitlines()
        return [msgspec.json.decode(line) for line in lines if line.startswith(b"{")]

    def end(self) -> None:
        """Kill what is left, with all that it has started."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where durable clients keep their secrets, also those of processes that are started."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A directory for a network; processes that were started are gone afterwards."""
    found = Place(tmp_path)
    yield found
    found.end()


@contextlib.asynccontextmanager
async def running(network: Network, *names: str) -> AsyncIterator[dict[str, BrokerNode]]:
    """Brokers in this process, all connected; stopped afterwards."""
    logs = {name: io.StringIO() for name in names or network.brokers}
    nodes = {name: BrokerNode(network, name, Log(name, stream=log)) for name, log in logs.items()}
    tasks = {name: asyncio.create_task(node.run()) for name, node in nodes.items()}
    try:
        # One that is ready may not listen yet.
        await until(lambda: all("serving" in log.getvalue() for log in logs.values()), tasks)
        await until(lambda: all(is_joined(node, nodes) for node in nodes.values()), tasks)
        yield nodes
    finally:
        for node in nodes.values():
            node.stop()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def is_joined(node: BrokerNode, nodes: dict[str, BrokerNode]) -> bool:
    """Whether a broker is ready and hears all of its neighbours that run."""
    if not hasattr(node, "driver") or not node.machine.is_ready or not node.machine._is_alive:
        return False
    wanted = node.network.links[node.name] & nodes.keys()
    return all(other in node.machine.neighbours and node.machine.neighbours[other].is_up for other in wanted)


async def until(holds: Callable[[], bool], tasks: dict[str, "asyncio.Task[None]"] | None = None) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, "it never came true"
        for task in (tasks or {}).values():
            if task.done():
                task.result()
        await asyncio.sleep(0.01)


async def all_up(network: Network) -> list[dict[str, Any]]:
    """Wait until every broker process answers, is ready and hears its neighbours."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        found = await ask_network(network)
        if all(
            broker["up"]
            and broker["ready"]
            and not broker["absent"]
            and all(peer["up"] for peer in broker["neighbours"].values())
            for broker in found
        ):
            return found
        assert time.monotonic() < end_s, found
        await asyncio.sleep(0.05)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test on the event loop that brokers use, with a bound on its time."""
    import uvloop

    async def bounded() -> None:
        async with asyncio.timeout(LONGEST_TEST_S):
            await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())
