"""`tidings top`: one frame for pipes, and a view that follows keys on a terminal."""

import asyncio
import contextlib
import os
import pty
import re
import subprocess

from tests.live.conftest import RUN, Place, run, running, until
from tests.live.test_operations import settled

from tidings.cli._top import SORTS, _spark
from tidings.live import connect


def test_one_frame_has_verdict_rates_brokers_links_subscribers_and_publishers(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="feed") as feed,
            connect(place.address("b"), name="desk", failover_s=None) as desk,
        ):
            events = await desk.subscribe("n >= 0", name="all")
            tight = await desk.subscribe("n >= 0", name="tight", max_delay_s=1e-9, late_s=60.0)
            await until(lambda: len(nodes["a"].machine.gossip.interests) == 2)
            for n in range(10):
                await feed.publish({"n": n})
                await anext(events)
                await anext(tight)
            await settled(network, 20)
            await until(lambda: bool(nodes["a"].history.facts()["publishers"]))
            shown = await frame(place, "--once")
            assert shown.startswith(
                "late: deadlines at b are shorter than the delay of events, 1 of 2 subscriptions affected\n"
            )
            assert re.search(r"^on time, last minute +50.0 %", shown, re.MULTILINE)
            assert "\n  do: allow more time (max_delay)" in shown
            assert re.search(r"^b +up +\d+% +1/1 ", shown, re.MULTILINE)
            assert re.search(r"^a - b +up +0 +0 +[\d.,]+ ms$", shown, re.MULTILINE)
            assert re.search(r"^desk/tight +b +connected +0.0 % +[\d.,]+ ms +0 +10 +0 +0$", shown, re.MULTILINE)
            assert re.search(r"^feed +a +connected +\S+ +10 +2$", shown, re.MULTILINE)
            assert shown.index("desk/tight  ") < shown.index("desk/all  "), "the worst first"
            assert "stranger gone" not in nodes["a"].log._stream.getvalue(), "questions are no news"
            by_name = await frame(place, "--sort", "name")
            assert by_name.index("desk/all  ") < by_name.index("desk/tight  ")
            nodes["b"].stop()
            await until(lambda: not nodes["a"].machine.neighbours["b"].is_up)
            down = await frame(place, "--once", code=1)
            assert down.startswith("down: broker b is down, 2 of 2 subscriptions affected\n")
            assert re.search(r"^b +down$", down, re.MULTILINE)

    run(work())


async def frame(place: Place, *options: str, code: int = 0) -> str:
    """What is printed where there is no terminal."""
    command = [*RUN, "top", str(place.directory / "network.toml"), *options]
    shown = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=120)
    assert shown.returncode == code, shown.stderr
    return "\n".join(line.rstrip() for line in shown.stdout.decode().splitlines())


def test_on_a_terminal_it_goes_on_until_q_and_s_sorts(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network):
            terminal, inside = pty.openpty()
            command = [*RUN, "top", str(network.path), "--every", "0.5"]
            process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
            os.close(inside)
            seen = ""
            for wanted, key in (("now by trouble", b"s"), ("now by name", b"q")):
                while wanted not in seen:
                    seen += (await asyncio.to_thread(os.read, terminal, 65_536)).decode(errors="replace")
                os.write(terminal, key)
            with contextlib.suppress(OSError):  # its end, as Linux reports it
                while await asyncio.to_thread(os.read, terminal, 65_536):
                    pass
            os.close(terminal)
            assert process.wait(60) == 0
            assert "OK: 1 broker, 0 links, 0 subscriptions" in seen

    run(work())


def test_an_order_that_does_not_exist_is_refused(place: Place) -> None:
    network = place.write("a")
    shown = subprocess.run([*RUN, "top", str(network.path), "--sort", "luck"], capture_output=True, timeout=120)
    assert shown.returncode == 2
    assert f"choose one of {', '.join(SORTS)}".encode() in shown.stderr


def test_bars() -> None:
    assert _spark([]) == ""
    assert _spark([None, 0.0, 7.0, 14.0]) == " ▁▅█"
    assert _spark([0.0]) == "▁"
