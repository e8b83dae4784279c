"""Traces of a live network: in the contract's format, complete, and with times that make sense."""

import asyncio
import subprocess
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.live.conftest import RUN, Place, run, running, until

from tidings.live import connect
from tidings.live.traces._trace_files import attribute_kinds, write_rows
from tidings.model.trace import TABLES, check_schema
from tidings.protocol import Acknowledged, Note
from tidings.protocol._machine import SAMPLED_RUN, Sampler

TRACE = '[trace]\ndirectory = "trace"\nroll_age = "300 ms"\n'


def rows(place: Place, table: str) -> list[dict[str, object]]:
    files = sorted((place.directory / "trace" / table).glob("[!_]*.parquet"))
    for file in files:
        check_schema(table, pq.read_schema(file))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_a_trace_has_every_event_hop_and_delivery_once(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", "c", more=TRACE)
        got: list[object] = []
        async with (
            running(network),
            connect(place.address("a"), name="p") as p,
            connect(place.address("c"), name="s") as s,
        ):
            await s.subscribe("n >= 10", name="some", max_delay_s=5.0, callback=got.append)
            await s.subscribe("n >= 0 AND x = 'y'", name="all", callback=got.append)
            await asyncio.sleep(0.5)
            for n in range(30):
                await p.publish({"n": n, "x": "y"} if n else {"n": 0.5, "x": "y"}, lifetime_s=20.0)
            await until(lambda: len(got) == 50)
            await s.unsubscribe("some")
            await asyncio.sleep(0.4)

    run(work())
    published = rows(place, "publications")
    assert sorted(row["sequence"] for row in published) == list(range(30))  # type: ignore[type-var]
    assert {row["broker"] for row in published} == {"a"}
    hops = rows(place, "hops")
    ways = [(row["source"], row["target"]) for row in hops]
    assert {way: ways.count(way) for way in ways} == {(None, "a"): 30, ("a", "b"): 30, ("b", "c"): 30}
    for hop in hops:
        assert hop["outcome"] == "received"
        assert hop["enqueued_ns"] <= hop["sent_ns"] <= hop["received_ns"]  # type: ignore[operator]
    deliveries = rows(place, "deliveries")
    assert len(deliveries) == 50
    assert {row["subscription"] for row in deliveries} == {"s/some", "s/all"}
    subscriptions = {row["subscription"]: row for row in rows(place, "subscriptions")}
    assert subscriptions["s/some"]["until_ns"] is not None
    assert subscriptions["s/some"]["max_delay_ns"] == 5 * 10**9
    departed = {row["sequence"]: row["departure_ns"] for row in published}
    for row in deliveries:
        assert 0 <= row["arrived_ns"] - departed[row["sequence"]] < 5 * 10**9  # type: ignore[operator]
    assert len(rows(place, "topology")) == 7
    up = [(row["kind"], row["source"], row["target"]) for row in rows(place, "transitions") if row["up"]]
    assert {("broker", "a", None), ("link", "a", "b"), ("link", "c", "b")} <= set(up)


def test_a_restart_goes_on_with_the_trace(place: Place) -> None:
    async def once() -> None:
        network = place.write("a", more=TRACE) if not place.ports else None
        network = network or read(place)
        async with running(network), connect(place.address("a"), name="s", durable=True) as s:
            events = await s.subscribe("n >= 0", name="all")
            await s.publish({"n": 1})
            await anext(events)

    run(once())
    run(once())
    assert len(rows(place, "deliveries")) == 2
    assert [row["subscription"] for row in rows(place, "subscriptions")] == ["s/all"]
    assert [row["up"] for row in rows(place, "transitions")] == [True, False, True]
    assert len(rows(place, "topology")) == 1


def read(place: Place):  # type: ignore[no-untyped-def]
    from tidings.live import read_network

    return read_network(place.directory / "network.toml")


def test_a_sample_is_the_same_at_every_broker_and_says_what_it_is(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", more=TRACE + "sample = 0.3\n")
        async with (
            running(network),
            connect(place.address("a"), name="p") as p,
            connect(place.address("b"), name="s") as s,
        ):
            events = await s.subscribe("n >= 0")
            await asyncio.sleep(0.4)
            for n in range(3_200):
                await p.offer({"n": n})
            for _ in range(3_200):
                await anext(events)

    run(work())
    published = {(row["publisher"], row["sequence"]) for row in rows(place, "publications")}
    delivered = {(row["publisher"], row["sequence"]) for row in rows(place, "deliveries")}
    assert published == delivered
    assert 16 * 15 < len(published) < 16 * 106  # 200 tosses with .3: seven deviations either way
    file = next((place.directory / "trace" / "hops").glob("[!_]*.parquet"))
    assert pq.read_schema(file).metadata[b"tidings.sample"] == b"0.3"


def test_sampling_is_by_identity() -> None:
    events = [("p", 1, SAMPLED_RUN * number) for number in range(5_000)]
    few = set(filter(Sampler(0.1), events))
    more = set(filter(Sampler(0.2), events))
    assert few < more
    assert all(map(Sampler(1.0), events))
    assert not any(map(Sampler(0.0), events))
    assert set(filter(Sampler(0.1), [(p, epoch, number + SAMPLED_RUN - 1) for p, epoch, number in events])) == {
        (p, epoch, number + SAMPLED_RUN - 1) for p, epoch, number in few
    }
    assert abs(len(few) - 500) < 7 * (5_000 * 0.1 * 0.9) ** 0.5


def test_attributes_of_several_kinds(tmp_path: Path) -> None:
    base = dict.fromkeys(("sequence", "departure_ns", "size_bytes", "lifetime_ns"), 1) | {
        "publisher": "p",
        "broker": "b",
    }
    found = [base | {"attributes": attributes} for attributes in ({"a": 1, "b": True}, {"a": 1.5, "c": "x"}, {"c": 2})]
    assert attribute_kinds(found) == {"a": "number", "b": "boolean", "c": "string"}
    write_rows(tmp_path, "publications", "one", found, 1.0)
    write_rows(tmp_path, "publications", "none", [base | {"attributes": {}}], 1.0)
    table = pq.read_table(tmp_path / "publications" / "one.parquet")
    assert table["attributes"].to_pylist()[1] == {"a": 1.5, "b": None, "c": "x"}
    assert "attributes" not in pq.read_schema(tmp_path / "publications" / "none.parquet").names


@pytest.mark.parametrize("table", [*TABLES])
def test_nothing_unfinished_is_left(place: Place, table: str) -> None:
    write_rows(place.directory, table, "empty", [], 1.0)
    assert [path.name for path in (place.directory / table).iterdir()] == ["empty.parquet"]


@pytest.mark.full
@pytest.mark.spark
def test_the_pipeline_reads_a_live_trace_and_finds_nothing_wrong(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", more=TRACE)
        got: list[object] = []
        async with (
            running(network),
            connect(place.address("a"), name="p") as p,
            connect(place.address("b"), name="s") as s,
        ):
            await s.subscribe("n >= 10", max_delay_s=20.0, callback=got.append)
            await asyncio.sleep(0.5)
            for n in range(40):
                await p.publish({"n": n})
            await until(lambda: len(got) == 30)
            await asyncio.sleep(0.4)

    run(work())
    command = [
        *RUN,
        "pipeline",
        "run",
        str(place.directory / "trace"),
        "--out",
        str(place.directory / "scores"),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, check=False, timeout=1_800)
    result = msgspec.json.decode(done.stdout)
    assert (result["matched"], result["on_time"], result["lost"], result["bad"]) == (30, 30, 0, 0)


def test_an_event_that_was_sent_again_under_another_number_has_one_hop(place: Place) -> None:
    """After a connection was lost an event goes out again under a new number; one acknowledgement may cover both."""
    event = ("p", 1, 0)

    async def work() -> None:
        network = place.write("a", "b", more=TRACE)
        async with running(network) as nodes:
            tracer = nodes["a"].driver.tracer
            assert tracer is not None
            now_ns = nodes["a"].driver.clock.now_ns()
            tracer.note(Note("enqueued", event, peer="b"), now_ns)
            for number in (7, 8):
                tracer.note(Note("sent", event, peer="b", number=number), now_ns)
            tracer.acknowledged(Acknowledged(peer="b", numbers=((7, 8),), held_ns=0), now_ns)

    run(work())
    assert [row["outcome"] for row in rows(place, "hops")] == ["received"]
