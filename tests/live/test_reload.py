"""Brokers and links that come and go while events flow, with real processes."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.live.conftest import Place, all_up, run, running, until
from tests.live.test_security import certified
from typer.testing import CliRunner

from tidings.errors import ConfigurationError
from tidings.live import Network, connect, read_network
from tidings.live.configuration._changes import Change, change_of
from tidings.live.operations._query import ask_network
from tidings.live.security._certificates import make_certificates
from tidings.rehearsal._ports import free_ports

SMALL = """
[[broker]]
name = "b1"
listen = "127.0.0.1:7001"
"""


def with_broker(place: Place, network: Network, name: str, *beside: str) -> str:
    """The file with one more broker."""
    (place.ports[name],) = free_ports(1)
    neighbours = msgspec.json.encode(beside).decode()
    text = network.path.read_text("utf-8")
    return f'{text}[[broker]]\nname = "{name}"\nlisten = "{place.address(name)}"\nneighbours = {neighbours}\n'


async def reload(network: Network) -> tuple[int, str]:
    """`tidings reload`: its exit code and what it says."""
    from tidings.cli._app import app

    done = await asyncio.get_running_loop().run_in_executor(
        None, lambda: CliRunner().invoke(app, ["reload", str(network.path)])
    )
    return done.exit_code, done.output


def test_a_broker_comes_and_goes_while_events_flow_and_nothing_is_lost(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", "c")
        before = network.path.read_text("utf-8")
        place.start("up", str(network.path))
        await all_up(network)
        got: dict[str, Counter[Any]] = {"c": Counter(), "d": Counter()}
        async with connect(place.address("a"), name="p") as p, connect(place.address("c"), name="sc") as sc:
            await sc.subscribe("n >= 0", callback=lambda event: got["c"].update([event.attributes["n"]]))
            await asyncio.sleep(0.5)
            sent = 0
            goes_on = True

            async def publish() -> None:
                nonlocal sent
                while goes_on:
                    await p.offer({"n": sent})
                    sent += 1
                    await asyncio.sleep(0.01)

            publishing = asyncio.create_task(publish())
            network.path.write_text(with_broker(place, network, "d", "b"), "utf-8")
            code, said = await reload(network)
            assert (code, said) == (0, f"{network.path}: broker d added, link b - d added\n")
            await all_up(read_network(network.path))
            async with connect(place.address("d"), name="sd") as sd:
                await sd.subscribe("n >= 0", callback=lambda event: got["d"].update([event.attributes["n"]]))
                await asyncio.sleep(1.0)
                first = sent
                await until(lambda: sent > first + 50)
                # Where the new broker is, clients that came before it find out when they need it.
                await p.move("d")
                await p.move("a")
                network.path.write_text(before, "utf-8")
                code, said = await reload(network)
                assert (code, said) == (0, f"{network.path}: broker d removed, link b - d removed\n")
                assert sd.home == "b", "the client was asked to move, and did"
                after = sent
                await until(lambda: sent > after + 50)
                goes_on = False
                await publishing
                await p.flush()
                await until(lambda: len(got["c"]) == sent and (sent - 1) in got["d"])
                await asyncio.sleep(0.3)
        assert set(got["c"].values()) == set(got["d"].values()) == {1}, "nothing comes twice"
        assert sorted(got["c"]) == list(range(sent))
        missing = set(range(first, sent)) - got["d"].keys()
        assert not missing, "what was published since the subscription was known came, over both homes"
        stopped = [line for line in place.logs() if line["who"] == "d" and line["event"] == "stopped"]
        assert [line["held"] for line in stopped] == [0], "it was drained"
        found = await ask_network(network)
        assert [broker["absent"] for broker in found] == [[], [], []]
        assert "d" not in {name for broker in found for name in broker["neighbours"]}

    run(work())


def test_links_come_and_go(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", "c", links=("a-b", "b-c"))
        place.start("up", str(network.path))
        await all_up(network)
        got: list[Any] = []
        async with connect(place.address("a"), name="p") as p, connect(place.address("c"), name="s") as s:
            await s.subscribe("n >= 0", callback=lambda event: got.append(event.attributes["n"]))
            await asyncio.sleep(0.5)
            text = network.path.read_text("utf-8")
            network.path.write_text(text.replace('neighbours = ["b"]', 'neighbours = ["c"]'), "utf-8")
            code, said = await reload(network)
            assert (code, said) == (0, f"{network.path}: link a - c added, link a - b removed\n")
            for n in range(20):
                await p.publish({"n": n})
            await until(lambda: sorted(got) == list(range(20)))
            a, b, c = await all_up(read_network(network.path))
            assert [[*broker["neighbours"]] for broker in (a, b, c)] == [["c"], ["c"], ["a", "b"]]

    run(work())


def test_what_cannot_be_followed_is_refused_and_nothing_changes(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        place.start("up", str(network.path))
        await all_up(network)
        text = network.path.read_text("utf-8")
        (port,) = free_ports(1)
        moved = with_broker(place, network, "d", "b").replace(place.address("a"), f"127.0.0.1:{port}")
        network.path.write_text(moved.replace("[network]", '[network]\nstore = "elsewhere"'), "utf-8")
        # The supervisor says how it is beside the stores: with another one it is not found.
        code, said = await reload(read_network(network.path))
        assert code == 1
        assert "no `tidings up` runs it on this machine" in said
        network.path.write_text(moved, "utf-8")
        code, said = await reload(network)
        assert code == 2
        assert f"listen of broker 'a' ({place.address('a')} to 127.0.0.1:{port})" in " ".join(said.split())
        network.path.write_text("[network\n", "utf-8")
        assert (await reload(network))[0] == 2
        network.path.write_text(text, "utf-8")
        assert [broker["up"] for broker in await all_up(network)] == [True, True]
        assert not any(line["event"] == "broker died" for line in place.logs())

    run(work())


def test_another_strategy_is_used_at_once_and_events_under_way_stay(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        text = network.path.read_text("utf-8")
        place.start("up", str(network.path))
        await all_up(network)
        got: Counter[Any] = Counter()
        async with connect(place.address("a"), name="p") as p, connect(place.address("b"), name="s") as s:
            await s.subscribe("n >= 0", callback=lambda event: got.update([event.attributes["n"]]))
            await p.publish({"n": 0}, require="reachable")
            network.path.write_text(text.replace('drain = "1 s"', 'drain = "1 s"\nstrategy = "fifo"'), "utf-8")
            assert await reload(network) == (0, f"{network.path}: strategy fifo\n")
            sent = 0
            while {broker["strategy"] for broker in await ask_network(network)} != {"fifo"}:
                sent += 1
                await p.publish({"n": sent})
            sent += 1
            await p.publish({"n": sent})
            await until(lambda: len(got) == sent + 1)
            assert set(got.values()) == {1}

    run(work())


def test_a_broker_by_itself_follows_sighup_and_leaves_when_it_is_taken_out(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        text = network.path.read_text("utf-8")
        alone, other = (place.start("broker", str(network.path), "--name", name) for name in ("a", "b"))
        await all_up(network)
        network.path.write_text(text.replace('drain = "1 s"', 'drain = "1 s"\nscheme = "buffer"'), "utf-8")
        alone.send_signal(signal.SIGHUP)
        await until(lambda: any(line["event"] == "reload refused" for line in place.logs()))
        assert "[network] scheme" in next(line["why"] for line in place.logs() if line["event"] == "reload refused")
        network.path.write_text(text.split('[[broker]]\nname = "b"')[0].replace('["b"]', "[]"), "utf-8")
        for process in (alone, other):
            process.send_signal(signal.SIGHUP)
        await until(lambda: other.poll() is not None)
        assert other.returncode == 0
        await until(lambda: any(line["event"] == "neighbour gone" for line in place.logs()))
        (left,) = await all_up(read_network(network.path))
        assert (left["neighbours"], left["absent"]) == ({}, [])
        os.kill(alone.pid, signal.SIGTERM)
        assert alone.wait(20) == 0

    run(work())


def test_an_expired_certificate_is_renewed_while_brokers_run(place: Place) -> None:
    async def work() -> None:
        network = certified(place, "a", "b")
        folder = place.directory / "certificates"
        make_certificates(folder, ("a", "b"), days=-1)
        async with running(network, "a") as a, running(network, "b") as b:
            log = a["a"].log._stream
            assert log is not None
            await until(lambda: "neighbour away" in log.getvalue())  # type: ignore[attr-defined]
            assert not b["b"].machine.neighbours
            make_certificates(folder, ("a", "b"))
            (folder / "b.key").rename(folder / "away.key")
            b["b"]._reloading.reload()
            assert "reload refused" in b["b"].log._stream.getvalue()  # type: ignore[union-attr]
            (folder / "away.key").rename(folder / "b.key")
            for node in (*a.values(), *b.values()):
                node._reloading.reload()
            await until(lambda: [*b["b"].machine.neighbours] == ["a"] and b["b"].machine.neighbours["a"].is_up)
            async with connect(place.address("b"), name="p", authority=folder / "authority.pem") as p:
                await p.publish({"n": 1})

    run(work())


def test_what_a_change_is(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"

    def read(text: str) -> Network:
        path.write_text(text, "utf-8")
        return read_network(path)

    before = read(SMALL)
    assert change_of(before, before) == Change()
    assert str(Change()) == "no broker or link is different"
    longer = SMALL + '[[broker]]\nname = "z"\nlisten = "127.0.0.1:7999"\nneighbours = ["b1"]\n'
    assert change_of(before, read(longer)) == Change(added=("z",), linked=(("b1", "z"),))
    assert change_of(read(longer), before) == Change(removed=("z",), unlinked=(("b1", "z"),))
    assert change_of(before, read(SMALL + '[limits]\nrate = "50 /s"\n')) == Change()
    assert change_of(before, read(SMALL + '[[token]]\nidentity = "*"\ntoken = "a long enough token"\n')) == Change()
    for more, named in (
        ('[limits]\nframe = "100 kB"\n', r"\[limits\] frame"),
        ('[network]\nstore = "there"\n', r"\[network\] store"),
        ('[network]\nping = "2 s"\n', r"\[network\] ping"),
        ('[trace]\ndirectory = "t"\n', r"\[trace\] directory"),
    ):
        with pytest.raises(ConfigurationError, match=f"cannot be applied while brokers run: {named}"):
            change_of(before, read(SMALL + more))
