"""A plan for a live network: its clients are asked to move, and lose nothing by it."""

import asyncio
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.live.conftest import RUN, Place, all_up, run, running, until
from tests.live.test_security import certified
from typer.testing import CliRunner

from tidings.live import DeniedError, Network, connect
from tidings.live.operations._moves import client_moves
from tidings.live.operations._orders import move_clients
from tidings.placement import Change, Expected, MadeFrom, Move, PlacementPlan, PlanAim, write_plan


def plan_of(*moves: tuple[str, str, str, str]) -> PlacementPlan:
    """A plan of moves: client, name, from, to."""
    none = Change(now=1.0, then=1.0)
    expected = Expected(messages_per_s=none, delay_ms=none, busiest=none)
    return PlacementPlan(
        made_from=MadeFrom(traces=["t"], from_ns=0, until_ns=10**9, events=1, deliveries=1),
        aim=PlanAim(objective="load", weight=100.0, hysteresis=0.01),
        moves=[
            Move(client=client, name=name, origin=origin, target=target, benefit=1.0, expected=expected)  # type: ignore[arg-type]
            for client, name, origin, target in moves
        ],
        stay={},
        expected=expected,
    )


def test_moves_of_a_plan_are_moves_of_clients() -> None:
    plan = plan_of(
        ("publisher", "team/desk/1700000", "a", "b"),
        ("subscriber", "team/desk/s1", "a", "c"),
        ("subscriber", "team/desk/s2", "a", "b"),
        ("publisher", "quotes", "a", "c"),
    )
    moves, left_out = client_moves(plan)
    assert moves == {"team/desk": "b", "quotes": "c"}
    assert [move.name for move in left_out] == ["team/desk/s1"]


def test_a_plan_that_there_is_is_shown_and_moves_nobody(tmp_path: Path) -> None:
    from tidings.cli._app import app

    plan = plan_of(("publisher", "p/17", "a", "c"))
    write_plan(plan, tmp_path / "plan.json")
    shown = CliRunner().invoke(app, ["place", str(tmp_path / "plan.json"), "--json"])
    assert msgspec.json.decode(shown.stdout, type=PlacementPlan) == plan
    assert "p/17" in CliRunner().invoke(app, ["place", str(tmp_path / "plan.json")]).stdout
    (tmp_path / "other.json").write_text("{}", "utf-8")
    assert CliRunner().invoke(app, ["place", str(tmp_path / "other.json")]).exit_code == 2


async def place_and_apply(what: Path, network: Network) -> tuple[int, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        *RUN, "place", str(what), "--apply", str(network.path), "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, trouble = await process.communicate()
    assert output, trouble.decode()
    return process.returncode or 0, msgspec.json.decode(output)


def test_publishers_move_as_planned_while_they_publish(place: Place) -> None:
    async def work() -> None:
        place.secret("secret", "of the brokers alone")
        network = place.write("a", "b", "c", network='broker_token_file = "secret"')
        place.start("up", str(network.path))
        await all_up(network)
        got: Counter[Any] = Counter()
        plan = place.directory / "plan.json"
        write_plan(
            plan_of(
                ("publisher", "p/17", "a", "c"),
                ("subscriber", "s/s1", "c", "b"),
                ("publisher", "nobody/3", "a", "b"),
                ("publisher", "there/4", "a", "b"),
            ),
            plan,
        )
        async with (
            connect(place.address("a"), name="p") as p,
            connect(place.address("c"), name="s") as s,
            connect(place.address("b"), name="there") as there,
        ):
            await s.subscribe("n >= 0", callback=lambda event: got.update([event.attributes["n"]]))
            await there.advertise("n < 0")
            await asyncio.sleep(0.5)
            applying = asyncio.create_task(place_and_apply(plan, network))
            sent = 0
            while not applying.done():
                await p.offer({"n": sent})
                sent += 1
                await asyncio.sleep(0.005)
            code, said = await applying
            assert code == 1, "one of them was not connected"
            assert {each["client"]: (each["origin"], each["outcome"]) for each in said["applied"]} == {
                "p": ("a", "moved"),
                "s": ("c", "moved"),
                "nobody": (None, "not connected"),
                "there": ("b", "there already"),
            }
            assert (p.home, s.home) == ("c", "b")
            await p.flush()
            await until(lambda: len(got) == sent)
            await asyncio.sleep(0.3)
            assert sorted(got) == list(range(sent))
            assert set(got.values()) == {1}
            await refusals(network, place.address("c"))

    run(work())


async def refusals(network: Network, address: str) -> None:
    """A client that does not want to move, a broker that there is not, and one who may not give orders."""
    async with connect(address, name="settled", may_be_moved=False) as settled:
        await settled.advertise("n < 0")
        stays, nowhere = await move_clients(network, {"settled": "a", "there": "x"}, patience_s=1.0)
        assert settled.home == "c"
        assert (stays.outcome, nowhere.outcome) == ("did not move", "no such broker")
        assert "still at 'c' after 1 s" in stays.why
        stranger = msgspec.structs.replace(network, broker_token="a guess")
        with pytest.raises(DeniedError, match="orders need the brokers' token"):
            await move_clients(stranger, {"settled": "a"})


def test_with_tls_orders_need_the_certificate_of_a_broker(place: Place) -> None:
    async def work() -> None:
        network = certified(place, "a", "b", "desk")
        authority = place.directory / "certificates" / "authority.pem"
        async with running(network), connect(place.address("a"), name="p", authority=authority) as p:
            await p.publish({"n": 1})
            (moved,) = await move_clients(network, {"p": "b"})
            assert (moved.outcome, p.home) == ("moved", "b")
            assert network.document.tls is not None
            tls = msgspec.structs.replace(
                network.document.tls, certificate="certificates/desk.pem", key="certificates/desk.key"
            )
            desk = msgspec.structs.replace(network, document=msgspec.structs.replace(network.document, tls=tls))
            with pytest.raises(DeniedError, match="orders need the certificate of a broker"):
                await move_clients(desk, {"p": "a"})

    run(work())


@pytest.mark.parametrize("more", ["", '[[token]]\nidentity = "*"\ntoken = "sesame, open yourself"\n'])
def test_where_nothing_is_said_orders_need_the_token_that_the_brokers_have_made(place: Place, more: str) -> None:
    async def work() -> None:
        network = place.write("a", more=more)
        async with running(network):
            (nobody,) = await move_clients(network, {"p": "a"})
            assert nobody.outcome == "not connected"
            network.implied_token_file.rename(place.directory / "elsewhere")
            with pytest.raises(DeniedError, match="orders need the brokers' token"):
                await move_clients(network, {"p": "a"})

    run(work())


@pytest.mark.full
@pytest.mark.spark
def test_from_a_live_trace_to_publishers_that_have_moved(place: Place) -> None:
    async def work() -> None:
        trace = place.directory / "trace"
        network = place.write("a", "b", "c", more=f'[trace]\ndirectory = "{trace}"\nroll_age = "1 s"\n')
        place.start("up", str(network.path))
        await all_up(network)
        got: Counter[Any] = Counter()
        async with connect(place.address("a"), name="p") as p, connect(place.address("c"), name="s") as s:
            await s.subscribe("n >= 0", callback=lambda event: got.update([event.attributes["n"]]))
            await asyncio.sleep(0.5)
            sent = 0
            for sent in range(1, 301):
                await p.publish({"n": sent})
            await asyncio.sleep(2.0)
            applying = asyncio.create_task(place_and_apply(trace, network))
            while not applying.done():
                sent += 1
                await p.publish({"n": sent})
                await asyncio.sleep(0.5)
            code, said = await applying
            assert (code, [(each["client"], each["target"]) for each in said["applied"]]) == (0, [("p", "c")])
            assert p.home == "c"
            await until(lambda: len(got) == sent)
            assert set(got.values()) == {1}

    run(work())
