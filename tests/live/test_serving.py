"""`tidings up` where things go wrong: interrupted while it starts, a port that is taken; and what its logs say."""

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from tests.live.conftest import Place, all_up, run, until

from tidings.live._errors import BrokenError
from tidings.live.broker._node import BrokerNode
from tidings.live.operations._logs import Log
from tidings.protocol.node import Preamble, prefixed


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    end_s = time.monotonic() + 60.0
    while not path.exists():
        assert time.monotonic() < end_s, f"{path.name} never came"
        time.sleep(0.005)


def stderr_of(place: Place) -> str:
    return (place.directory / "process-0.log").read_text("utf-8")


@pytest.mark.parametrize("moment", ["supervisor", "broker started"])
def test_ctrl_c_while_a_network_starts_is_quiet(place: Place, moment: str) -> None:
    async def started() -> None:
        await until(lambda: any(line["event"] == "broker started" for line in place.logs()))

    network = place.write("a", "b")
    supervisor = place.start("up", str(network.path))
    wait_for(network.store_of("a").parent / "up.json")
    if moment == "broker started":
        run(started())
    os.killpg(supervisor.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
    assert supervisor.wait(60) == 0
    assert "Traceback" not in stderr_of(place)
    assert place.logs()[-1]["event"] == "all brokers stopped"


SLOW_START = """
import sys
from pathlib import Path
from tidings.live import read_network
from tidings.live.broker import _supervisor
from tidings.live.operations._logs import Log

if __name__ == "__main__":
    _supervisor.SLOW_START_S = 0.0
    supervisor = _supervisor.Supervisor(read_network(Path(sys.argv[1])), Log("up"))
    supervisor._context.set_forkserver_preload(["slow_preload"])  # in the place of kernels that are not compiled yet
    supervisor.run()
"""
SLOW_PRELOAD = """
import time
from pathlib import Path

while not Path(__file__).with_name("go").exists():
    time.sleep(0.05)
"""


def test_while_kernels_are_compiled_it_says_so_and_obeys_ctrl_c(place: Place) -> None:
    network = place.write("a", "b")
    (place.directory / "slow_preload.py").write_text(SLOW_PRELOAD)
    program = place.directory / "start.py"
    program.write_text(SLOW_START)
    log = place.directory / "process-0.log"
    with log.open("wb") as stream:
        supervisor = subprocess.Popen(
            [sys.executable, str(program), str(network.path)],
            stderr=stream,
            env={**os.environ, "PYTHONPATH": str(place.directory)},
            start_new_session=True,
        )
    place.processes.append(supervisor)
    run(until(lambda: any(line["event"] == "still starting" for line in place.logs())))
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(60) == 0
    assert [line["event"] for line in place.logs()] == ["starting", "still starting", "all brokers stopped"]
    (place.directory / "go").touch()


def test_a_taken_port_ends_it_with_the_reason(place: Place) -> None:
    network = place.write("a", "b")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", place.ports["b"]))
        taken.listen()
        supervisor = place.start("up", str(network.path))
        assert supervisor.wait(60) == 1
    assert f"error: {network.path}: the network was not started: broker 'b' cannot listen" in stderr_of(place)
    assert "Traceback" not in stderr_of(place)
    started = [line for line in place.logs() if line["event"] == "broker started"]
    assert sorted(line["broker"] for line in started) == ["a", "b"], "nobody was started twice"


def test_a_neighbour_that_falls_silent_is_in_the_log(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        place.start("broker", str(network.path), "--name", "a")
        paused = place.start("broker", str(network.path), "--name", "b")
        await all_up(network)
        shown = Path(f"/proc/{paused.pid}/comm")  # by `ps`
        assert not shown.exists() or shown.read_text() == "tidings b\n"
        os.kill(paused.pid, signal.SIGSTOP)

        def said(event: str) -> list[str]:
            return [line["peer"] for line in place.logs() if line["event"] == event and line["who"] == "a"]

        await until(lambda: said("neighbour lost") == ["b"])
        heard = len(said("neighbour heard"))
        os.kill(paused.pid, signal.SIGCONT)
        await until(lambda: len(said("neighbour heard")) > heard)

    run(work())


def test_a_line_says_when_whatever_its_facts_are() -> None:
    stream = io.StringIO()
    log = Log("a", stream=stream)
    log.info("metrics", address="http://127.0.0.1:9/metrics")
    line = msgspec.json.decode(stream.getvalue())
    assert line["at"].endswith("+00:00")
    assert line["address"] == "http://127.0.0.1:9/metrics"
    with pytest.raises(AssertionError, match="a name of the line's head"):
        log.info("metrics", at="somewhere")


def test_a_broker_with_a_bug_stops_and_says_where(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not go on in a state that nobody knows."""

    async def work() -> None:
        log = io.StringIO()
        node = BrokerNode(place.write("a"), "a", Log("a", stream=log))
        task = asyncio.create_task(node.run())
        await until(lambda: "serving" in log.getvalue())
        monkeypatch.setattr(node.machine, "connected", lambda *_, **__: 1 // 0)
        _, writer = await asyncio.open_connection("127.0.0.1", place.ports["a"])
        writer.write(b"".join(prefixed([msgspec.msgpack.encode(Preamble("client", "c"))])))
        with pytest.raises(BrokenError, match="broker 'a' has stopped: ZeroDivisionError in test_serving"):
            await task
        writer.close()
        lines = [msgspec.json.decode(line) for line in log.getvalue().splitlines()]
        (broken,) = [line for line in lines if line["event"] == "internal error"]
        assert broken["why"] == "ZeroDivisionError: integer division or modulo by zero"

    run(work())
