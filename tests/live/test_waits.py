"""How commands that connect report what takes long."""

import asyncio
import subprocess

from tests.live.conftest import RUN, Place, run, running

from tidings.rehearsal._ports import free_ports


def test_a_connection_that_takes_long_is_reported_before_it_fails() -> None:
    """Publishing to nobody was silent for 15 s."""
    (port,) = free_ports(1)
    command = [*RUN, "publish", f"127.0.0.1:{port}"]
    shown = subprocess.run(command, input=b'{"n": 1}\n', capture_output=True, timeout=120, check=False)
    first, last = shown.stderr.decode().splitlines()
    assert first.startswith(
        f"still connecting to 127.0.0.1:{port} (127.0.0.1:{port} cannot be reached: Connection refused"
    )
    assert first.endswith("; trying again")
    assert last.startswith("error: ")
    assert shown.returncode == 1


def test_a_host_that_nobody_knows_is_named() -> None:
    command = [*RUN, "publish", "no-such-host.invalid:7001"]
    shown = subprocess.run(command, input=b"", capture_output=True, timeout=120, check=False)
    assert b"no-such-host.invalid:7001 cannot be reached: " in shown.stderr
    assert b"Unknown error" not in shown.stderr
    assert shown.returncode == 1


def test_a_broker_that_comes_late_is_waited_for_aloud(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        command = [*RUN, "subscribe", place.address("a"), "n > 0", "--seconds", "0.1"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        lines = [process.stderr.readline().decode()]
        assert "still connecting" in lines[0]
        async with running(network):
            lines += (await asyncio.to_thread(process.stderr.read)).decode().splitlines()
        process.stderr.close()
        assert process.wait(60) == 0
        assert lines[1:] == ["connected to a", "subscribed"] or lines[1:] == ["subscribed"]

    run(work())


def test_a_quick_connection_is_not_mentioned(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network):
            command = [*RUN, "publish", place.address("a")]
            shown = await asyncio.to_thread(
                subprocess.run, command, input=b'{"n": 1}\n', capture_output=True, timeout=120
            )
        assert shown.stderr.decode().splitlines()[-1] == "1 events accepted"

    run(work())
