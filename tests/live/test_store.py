"""The durable store: all or nothing, never less than was promised, never more than is true."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.live.conftest import Place, run, until
from tests.live.test_processes import filled_store

from tidings.live import StoreError, StoreFullError, connect
from tidings.live.operations._asking import ask_network
from tidings.live.storage._committer import Committer
from tidings.live.storage._store import Store
from tidings.live.transport._clock import Clock

KEYS = st.one_of(st.text(max_size=20), st.text(min_size=450, max_size=600))
WRITES = st.lists(st.dictionaries(KEYS, st.one_of(st.none(), st.binary(max_size=50)), max_size=6), max_size=6)


@given(batches=WRITES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_store_is_a_table_that_lasts(tmp_path: Path, batches: list[dict[str, bytes | None]]) -> None:
    directory = tmp_path / str(abs(hash(repr(batches))))
    wanted: dict[str, bytes] = {}
    for number, batch in enumerate(batches, 1):
        store = Store.open(directory)
        store.commit(batch, number)
        store.close()
        for key, value in batch.items():
            if value is None:
                wanted.pop(key, None)
            else:
                wanted[key] = value
    store = Store.open(directory)
    assert store.load() == (wanted, len(batches))
    store.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    code = (
        f"from pathlib import Path; from tidings.live.storage._store import Store; Store.open(Path({str(tmp_path)!r}))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "is in use by another process: stop that one first" in other.stderr
    store.close()
    Store.open(tmp_path).close()


def filled(directory: Path) -> dict[str, bytes]:
    store = Store.open(directory)
    kept = {f"event/{number}": bytes([number % 256]) * 700 for number in range(200)}
    store.commit(kept, 5)
    store.close()
    return kept


@pytest.mark.parametrize("place", [*range(0, 200_000, 9_973)])
def test_a_damaged_store_is_an_error_or_whole_and_never_less(tmp_path: Path, place: int) -> None:
    kept = filled(tmp_path)
    file = tmp_path / "data.mdb"
    data = bytearray(file.read_bytes())
    place %= len(data)
    data[place : place + 8] = bytes(byte ^ 0xFF for byte in data[place : place + 8])
    file.write_bytes(data)
    with contextlib.suppress(StoreError):  # the error is right; anything but the whole content is not
        store = Store.open(tmp_path)
        try:
            assert store.load()[0] == kept
        finally:
            store.close()


def test_a_damaged_value_is_found_by_its_checksum(tmp_path: Path) -> None:
    filled(tmp_path)
    file = tmp_path / "data.mdb"
    data = bytearray(file.read_bytes())
    place = data.index(bytes([7]) * 700)
    data[place + 100] ^= 1
    file.write_bytes(data)
    store = Store.open(tmp_path)
    with pytest.raises(StoreError, match=r"checksum .* is wrong.* Restore it from a copy, or move it away"):
        store.load()
    store.close()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_store_that_was_cut_off_is_not_read(tmp_path: Path, share: float) -> None:
    filled(tmp_path)
    file = tmp_path / "data.mdb"
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)] if share else b"not a store")
    with pytest.raises(StoreError, match="is damaged"), contextlib.closing(Store.open(tmp_path)) as store:
        store.load()


def test_a_file_without_its_last_unused_pages_is_sound(tmp_path: Path) -> None:
    """LMDB does not write pages that it allocated and never used: a kill leaves such files now and then."""
    kept = filled(tmp_path)
    left = dict(list(kept.items())[:3])
    with contextlib.closing(Store.open(tmp_path)) as store:
        store.commit(dict.fromkeys(list(kept)[3:]), 6)
        for number in range(4):
            store.commit({"more": bytes([number])}, 7)
    file = tmp_path / "data.mdb"
    os.truncate(file, file.stat().st_size - 4_096)
    with contextlib.closing(Store.open(tmp_path)) as store:
        assert store._missing_bytes == 0
        assert store.load()[0] == left | {"more": b"\3"}


def test_no_room_writes_nothing_and_says_so(tmp_path: Path) -> None:
    store = Store.open(tmp_path, max_bytes=200_000)
    store.commit({"a": b"1"}, 1)
    with pytest.raises(StoreFullError, match="raise `store_size`"):
        store.commit({"a": b"2", **{f"b{number}": bytes(1_000) for number in range(500)}}, 2)
    assert store.load() == ({"a": b"1"}, 1)
    store.commit({"a": b"3"}, 3)
    assert store.load() == ({"a": b"3"}, 3)
    store.close()


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Files of this process cannot grow beyond 300 kB, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, before)


@pytest.mark.usefixtures("small_disk")
def test_nothing_is_confirmed_while_the_disk_is_full_and_everything_afterwards(tmp_path: Path) -> None:
    async def work() -> None:
        store = Store.open(tmp_path)
        synced: list[int] = []
        full: list[StoreFullError | None] = []
        failed: list[StoreError] = []
        committer = Committer(store, Clock(), on_synced=synced.append, on_full=full.append, on_failure=failed.append)
        committer.write("small", b"1")
        committer.sync(1)
        while not synced:
            await asyncio.sleep(0.01)
        for number in range(600):
            committer.write(f"large/{number}", bytes(1_000))
        committer.sync(2)
        while not full and not failed:
            await asyncio.sleep(0.01)
        assert not failed
        assert synced == [1]
        assert "no space left" in str(full[0])
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        while len(synced) < 2:
            await asyncio.sleep(0.01)
        assert full[-1] is None
        await committer.close()
        assert len(store.load()[0]) == 601
        store.close()

    asyncio.run(work())


def test_the_last_word_on_a_key_counts_and_lazy_writes_are_committed_at_the_end(tmp_path: Path) -> None:
    async def work() -> None:
        store = Store.open(tmp_path)
        synced: list[int] = []
        committer = Committer(store, Clock(), on_synced=synced.append, on_full=pytest.fail, on_failure=pytest.fail)
        committer.write("a", b"1")
        committer.write("a", None)
        committer.write("b", b"2")
        committer.sync(7)
        committer.write("c", b"3")
        await committer.close()
        await asyncio.sleep(0)
        assert synced == [7]
        assert store.load()[0] == {"b": b"2", "c": b"3"}
        store.close()

    asyncio.run(work())


def test_a_broker_that_was_killed_has_all_its_events_and_serves_before_it_has_loaded_what_queues_need(
    place: Place,
) -> None:
    async def work() -> None:
        network = place.write("a")
        filled_store(network, "a", 5_000)
        for life in range(2):
            process = place.start("broker", str(network.path))
            async with connect(place.address("a"), name=f"p{life}", connect_s=60.0) as publisher:
                await publisher.publish({"n": life})
            assert (await ask_network(network))[0]["stored"] == 5_000
            if not life:
                await until(lambda: any(line["event"] == "warm" for line in place.logs()))
            process.kill()
            process.wait()
        events = [line["event"] for line in place.logs()]
        assert events.index("serving") < events.index("warm")
        assert [line["held"] for line in place.logs() if line["event"] == "started"] == [5_000, 5_000]

    run(work(), within_s=120.0)
