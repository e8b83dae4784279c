"""The durable store: all or nothing, never less than was promised, never more than is true."""

import asyncio
import contextlib
import hashlib
import os
import resource
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.live.conftest import RUN, Place, run, until
from tests.live.test_processes import filled_store

from tidings.live import StoreError, StoreFullError, connect
from tidings.live.operations._query import ask_network
from tidings.live.storage._committer import Committer
from tidings.live.storage._store import Store
from tidings.live.transport._clock import Clock
from tidings.protocol.node import opened, sealed
from tidings.protocol.node._commits import Commits

KEYS = st.one_of(st.text(max_size=20), st.text(min_size=450, max_size=600))
WRITES = st.lists(st.dictionaries(KEYS, st.one_of(st.none(), st.binary(max_size=50)), max_size=6), max_size=6)


@given(batches=WRITES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_store_is_a_table_that_lasts(tmp_path: Path, batches: list[dict[str, bytes | None]]) -> None:
    directory = tmp_path / str(abs(hash(repr(batches))))
    wanted: dict[str, bytes] = {}
    for batch in batches:
        store = Store.open(directory)
        store.commit(batch)
        store.close()
        for key, value in batch.items():
            if value is None:
                wanted.pop(key, None)
            else:
                wanted[key] = value
    store = Store.open(directory)
    assert store.load() == wanted
    store.close()


class Writer:
    """What a node does with its store, without the rest of it: commits are decided, carried out and confirmed."""

    def __init__(
        self,
        store: Store,
        *,
        on_synced: Callable[[int], None],
        on_full: Callable[[StoreFullError | None], None],
        on_failure: Callable[[StoreError], None],
    ) -> None:
        self._clock = Clock()
        self._commits = Commits()
        self._on_synced, self._on_full = on_synced, on_full
        self._was_full = False
        self._is_closing = False
        self._committer = Committer(
            store, on_committed=self._committed, on_refused=self._refused, on_failure=on_failure
        )
        self._timer = asyncio.create_task(self._tick())

    @property
    def is_full(self) -> bool:
        return self._commits.is_full

    def write(self, key: str, value: bytes | None, *, ahead: bool = False) -> None:
        self._commits.write(key, value, ahead=ahead)

    def sync(self, token: int) -> None:
        self._commits.sync(token)
        self._next()

    async def close(self) -> None:
        self._is_closing = True
        self._next()
        while not (self._commits.is_idle or self._commits.is_full):
            await asyncio.sleep(0.01)
        self._timer.cancel()
        await self._committer.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.01)
            self._next()
            if self._was_full and self._commits.is_calm(self._clock.now_ns()):
                self._was_full = False
                self._on_full(None)

    def _next(self) -> None:
        commit = self._commits.next(self._clock.now_ns(), hurry=self._is_closing)
        if commit is not None and (commit.writes or commit.is_ahead):
            self._committer.commit(commit)
        elif commit is not None:
            self._committed()

    def _committed(self) -> None:
        for token in self._commits.done(self._clock.now_ns()):
            self._on_synced(token)
        self._next()

    def _refused(self, error: StoreFullError) -> None:
        self._commits.refused(self._clock.now_ns())
        if not self._was_full:
            self._was_full = True
            self._on_full(error)
        self._next()


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
    store.commit({key: sealed(key, value) for key, value in kept.items()})
    store.close()
    return kept


@pytest.mark.parametrize("place", [*range(0, 200_000, 9_973)])
def test_a_damaged_store_is_an_error_or_says_what_is_missing(tmp_path: Path, place: int) -> None:
    kept = filled(tmp_path)
    file = tmp_path / "data.mdb"
    data = bytearray(file.read_bytes())
    place %= len(data)
    data[place : place + 8] = bytes(byte ^ 0xFF for byte in data[place : place + 8])
    file.write_bytes(data)
    with contextlib.suppress(StoreError):  # the error is right; anything wrong, or missing without a word, is not
        store = Store.open(tmp_path)
        try:
            found = opened(store.load())
            assert found.kept.items() <= kept.items()
            assert len(found.kept) + len(found.damaged) == len(kept)
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
    found = opened(store.load())
    assert found.damaged == ("event/7",)
    assert found.kept.keys() == {f"event/{number}" for number in range(200) if number != 7}
    store.commit({"event/7": None})
    assert opened(store.load()).damaged == ()
    store.close()


@contextlib.contextmanager
def opened_by_hand(directory: Path) -> Iterator[lmdb.Transaction]:
    with (
        lmdb.open(str(directory), map_size=1 << 30, lock=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        yield transaction


@pytest.mark.parametrize("name", ["short", "long" * 200])
def test_a_store_of_the_first_format_is_read_and_goes_on_in_this_one(tmp_path: Path, name: str) -> None:
    """Format 1: checksums were made by the store, over LMDB's own keys; the time had a key of its own."""
    key = b"=" + name.encode() if len(name) < 480 else b"#" + hashlib.sha256(name.encode()).digest()
    value = b"value" if len(name) < 480 else msgspec.msgpack.encode((name, b"value"))
    with opened_by_hand(tmp_path) as transaction:
        for each, data in ((key, value), (b"!clock", b"77")):
            transaction.put(each, zlib.crc32(data, zlib.crc32(each)).to_bytes(4, "big") + data)
    with contextlib.closing(Store.open(tmp_path)) as store:
        found = opened(store.load())
        assert (found.kept, found.damaged, found.noted_ns, found.format) == ({name: b"value"}, (), 77, None)
        store.commit({name: sealed(name, b"other"), "clock/1": sealed("clock/1", b"78")})
        found = opened(store.load())
        assert (found.kept, found.damaged, found.noted_ns) == ({name: b"other"}, (), 78)
        store.commit({name: None})
        assert opened(store.load()).kept == {}


def test_a_long_key_that_cannot_be_read_is_damaged_until_it_is_erased(tmp_path: Path) -> None:
    name = "event/" + "long" * 200
    with contextlib.closing(Store.open(tmp_path)) as store:
        store.commit({name: sealed(name, b"value"), "other": sealed("other", b"1")})
    with opened_by_hand(tmp_path) as transaction:
        (key, data), _ = list(transaction.cursor())
        transaction.put(key, data[:20])
    with contextlib.closing(Store.open(tmp_path)) as store:
        found = opened(store.load())
        assert found.kept == {"other": b"1"}
        assert len(found.damaged) == 1
        store.commit(dict.fromkeys(found.damaged))
        assert opened(store.load()).damaged == ()


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
        store.commit(dict.fromkeys(list(kept)[3:]))
        for number in range(4):
            store.commit({"more": sealed("more", bytes([number]))})
    file = tmp_path / "data.mdb"
    os.truncate(file, file.stat().st_size - 4_096)
    with contextlib.closing(Store.open(tmp_path)) as store:
        assert store._missing_bytes == 0
        assert opened(store.load()).kept == left | {"more": b"\3"}


def test_no_room_writes_nothing_and_says_so(tmp_path: Path) -> None:
    store = Store.open(tmp_path, max_bytes=200_000)
    store.commit({"a": b"1"})
    with pytest.raises(StoreFullError, match="raise `store_size`"):
        store.commit({"a": b"2", **{f"b{number}": bytes(1_000) for number in range(500)}})
    assert store.load() == {"a": b"1"}
    store.commit({"a": b"3"})
    assert store.load() == {"a": b"3"}
    store.close()


def to_the_brim(store: Store, size_bytes: int) -> list[str]:
    """Fill a store until not even one more value has room; the names of what it holds."""
    held: list[str] = []
    together = max(50_000 // size_bytes, 1)
    while together:
        more = [f"event/{number}" for number in range(len(held), len(held) + together)]
        try:
            store.commit({name: bytes(size_bytes) for name in more} | {"epoch": b"1"})
        except StoreFullError:
            together //= 2
        else:
            held += more
    return held


@pytest.mark.parametrize("size_bytes", [10, 1_000, 3_000, 20_000])
def test_what_a_full_store_holds_can_be_changed_and_erased_and_its_room_used_again(
    tmp_path: Path, size_bytes: int
) -> None:
    with contextlib.closing(Store.open(tmp_path, max_bytes=3_000_000)) as store:
        held = to_the_brim(store, size_bytes)
        for epoch in range(2, 9):
            store.commit({"epoch": str(epoch).encode()})
        for _ in range(3):
            store.make_room(held[::2])  # some on every page
            assert store.load().keys() == {"epoch", *held[1::2]}
            together = 4 * max(50_000 // size_bytes, 1)
            for begin in range(0, len(held), together):
                store.make_room([])  # whatever the commit before has freed
                store.commit({name: bytes(size_bytes) for name in held[begin : begin + together : 4]})
            assert store.load().keys() == {"epoch", *held[1::2], *held[::4]}
        store.make_room(held)
        assert store.load() == {"epoch": b"8"}
        assert len(to_the_brim(store, size_bytes)) >= 0.95 * len(held)


def test_a_store_that_holds_more_than_its_bound_can_be_emptied(tmp_path: Path) -> None:
    with contextlib.closing(Store.open(tmp_path, max_bytes=4_000_000)) as store:
        held = to_the_brim(store, 1_000)
    with contextlib.closing(Store.open(tmp_path, max_bytes=1_000_000)) as store:
        store.commit({"epoch": b"2"})
        with pytest.raises(StoreFullError, match="wait until events have left or expired"):
            store.commit({f"more/{number}": bytes(1_000) for number in range(10)})
        store.make_room(held)
        store.commit({f"more/{number}": bytes(1_000) for number in range(10)})


def test_only_what_may_go_ahead_is_erased_while_there_is_no_room(tmp_path: Path) -> None:
    async def work() -> None:
        store = Store.open(tmp_path, max_bytes=1_000_000)
        synced: list[int] = []
        full: list[StoreFullError | None] = []
        committer = Writer(store, on_synced=synced.append, on_full=full.append, on_failure=pytest.fail)
        before = {f"old/{number}": bytes(10_000) for number in range(60)} | {"registered": b"1"}
        for key, value in before.items():
            committer.write(key, value)
        committer.sync(1)
        await until(lambda: synced == [1])
        for number in range(60):
            committer.write(f"new/{number}", bytes(10_000))
        committer.write("departed", b"1")
        committer.write("registered", None)  # not before "departed" is there
        committer.sync(2)
        await until(lambda: committer.is_full)
        for number in range(10):
            committer.write(f"old/{number}", None, ahead=True)
        committer.write("old/0", b"again")
        committer.write("new/0", None, ahead=True)
        kept = dict(list(before.items())[10:]) | {"old/0": bytes(10_000)}
        await until(lambda: opened(store.load()).kept == kept)
        assert committer.is_full
        assert synced == [1]
        for number in range(10, 60):
            committer.write(f"old/{number}", None, ahead=True)
        await until(lambda: synced == [1, 2])
        wanted = {f"new/{number}": bytes(10_000) for number in range(1, 60)}
        assert opened(store.load()).kept == wanted | {"departed": b"1", "old/0": b"again"}
        assert not committer.is_full
        await until(lambda: full[-1] is None)
        assert len(full) == 2
        await committer.close()
        store.close()

    asyncio.run(work())


def test_a_store_that_lacks_room_again_and_again_says_so_once(tmp_path: Path) -> None:
    async def work() -> None:
        store = Store.open(tmp_path, max_bytes=1_000_000)
        synced: list[int] = []
        full: list[StoreFullError | None] = []
        committer = Writer(store, on_synced=synced.append, on_full=full.append, on_failure=pytest.fail)
        for life in range(3):
            for number in range(80):
                committer.write(f"{life}/{number}", bytes(10_000))
            committer.sync(life)
            if life:  # there is room for one of them only
                await until(lambda: committer.is_full)
                for number in range(80):
                    committer.write(f"{life - 1}/{number}", None, ahead=True)
            await until(lambda life=life: synced == [*range(life + 1)])  # type: ignore[misc]
        assert len(full) == 1
        await until(lambda: full[-1] is None)
        await committer.close()
        assert opened(store.load()).kept == {f"2/{number}": bytes(10_000) for number in range(80)}
        store.close()

    asyncio.run(work())


def test_what_is_erased_in_time_makes_room_when_a_full_store_is_closed(tmp_path: Path) -> None:
    async def work() -> None:
        store = Store.open(tmp_path, max_bytes=1_000_000)
        synced: list[int] = []
        full: list[StoreFullError | None] = []
        committer = Writer(store, on_synced=synced.append, on_full=full.append, on_failure=pytest.fail)
        for number in range(60):
            committer.write(f"old/{number}", bytes(10_000))
        committer.sync(1)
        await until(lambda: synced == [1])
        for number in range(60):
            committer.write(f"new/{number}", bytes(10_000))
        committer.write("old/0", b"again")
        for number in range(10):
            committer.write(f"old/{number}", None, ahead=number > 0)
        await committer.close()  # what has no room is given up: nobody was told that it is kept
        assert opened(store.load()).kept == {f"old/{number}": bytes(10_000) for number in (0, *range(10, 60))}
        store.close()

    asyncio.run(work())


def test_a_broker_whose_store_was_full_goes_on_when_its_events_have_expired_and_after_a_restart(place: Place) -> None:
    async def fill(number: int) -> None:
        """Publish until nothing is accepted any more."""
        async with connect(place.address("a"), name=f"p{number}", connect_s=60.0, max_in_flight=64) as publisher:
            while b"the store of a is full" not in await status():
                while not (await ask_network(network))[0]["store"]["full"]:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(1.0):
                            for _ in range(50):
                                await publisher.offer({"n": number}, payload=bytes(12_000), lifetime_s=6.0)

    async def status() -> bytes:
        asked = await asyncio.create_subprocess_exec(*RUN, "status", str(network.path), stdout=subprocess.PIPE)
        return (await asked.communicate())[0]

    async def goes_on(number: int) -> None:
        async with connect(place.address("a"), name=f"q{number}", connect_s=60.0) as publisher:
            await publisher.publish({"n": number}, payload=bytes(12_000), lifetime_s=6.0)

    network = place.write("a", network='store_size = "4 MB"')

    async def work() -> None:
        place.start("broker", str(network.path))
        async with connect(place.address("a"), name="away", durable=True, connect_s=60.0) as subscriber:
            await subscriber.subscribe("n >= 0", name="all")
        await fill(0)
        await goes_on(0)
        await until(lambda: [line["event"] for line in place.logs()].count("store has room again") == 1)
        await fill(1)
        place.processes[0].kill()
        place.processes[0].wait()
        place.start("broker", str(network.path))
        await goes_on(1)
        assert (await ask_network(network))[0]["subscriptions"] == 1
        events = [line["event"] for line in place.logs()]
        assert events.count("store full") <= 3
        assert events.count("store has room again") <= events.count("store full")

    run(work())


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
        committer = Writer(store, on_synced=synced.append, on_full=full.append, on_failure=failed.append)
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
        while len(synced) < 2 or full[-1] is not None:
            await asyncio.sleep(0.01)
        assert len(full) == 2
        await committer.close()
        assert len(opened(store.load()).kept) == 601
        store.close()

    asyncio.run(work())


def test_the_last_word_on_a_key_counts_and_lazy_writes_are_committed_at_the_end(tmp_path: Path) -> None:
    async def work() -> None:
        store = Store.open(tmp_path)
        synced: list[int] = []
        committer = Writer(store, on_synced=synced.append, on_full=pytest.fail, on_failure=pytest.fail)
        committer.write("a", b"1")
        committer.write("a", None)
        committer.write("b", b"2")
        committer.sync(7)
        committer.write("c", b"3")
        await committer.close()
        await asyncio.sleep(0)
        assert synced == [7]
        assert opened(store.load()).kept == {"b": b"2", "c": b"3"}
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

    run(work())


def test_a_broker_starts_without_its_damaged_records_and_says_which_and_delivers_the_rest(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        got: list[int] = []

        def kill() -> None:
            place.processes[-1].kill()
            place.processes[-1].wait()

        place.start("broker", str(network.path))
        async with connect(place.address("a"), name="s", durable=True, connect_s=30.0) as subscriber:
            await subscriber.subscribe("n >= 0", name="all", callback=lambda event: got.append(event.attributes["n"]))
            subscriber._driver.call(subscriber._machine.pause)  # so that events stay in the store
            async with connect(place.address("a"), name="p", connect_s=30.0) as publisher:
                for number in range(20):
                    await publisher.publish({"n": number}, lifetime_s=60.0)
            kill()
            with opened_by_hand(network.store_of("a")) as transaction:
                events = [key for key, _ in transaction.cursor() if key.startswith(b"=event/")]
                for key in (events[0], b"=subscription/1/s/all"):
                    data = bytearray(transaction.get(key))
                    data[-1] ^= 1
                    transaction.put(key, bytes(data))
            place.start("broker", str(network.path))
            subscriber._driver.call(subscriber._machine.resume)
            await until(lambda: len(got) == 19)
            async with connect(place.address("a"), name="q", connect_s=30.0) as publisher:
                await publisher.publish({"n": 20})
            await until(lambda: len(got) == 20)  # it has subscribed again by itself
            assert len(set(got)) == 20
            assert (await ask_network(network))[0]["store"]["damaged"] == 2
        (said,) = [line for line in place.logs() if line["event"] == "store damaged"]
        assert said["records"] == 2
        assert said["kinds"] == {"event": 1, "subscription": 1}
        assert said["first"] == [events[0][1:].decode(), "subscription/1/s/all"]
        kill()
        place.start("broker", str(network.path))
        async with connect(place.address("a"), name="q", connect_s=30.0):
            assert (await ask_network(network))[0]["store"]["damaged"] == 0

    run(work())


def test_a_store_of_a_later_format_is_refused_with_the_remedy(place: Place) -> None:
    network = place.write("a")
    folder = network.store_of("a")
    with contextlib.closing(Store.open(folder)) as store:
        store.commit({"format": sealed("format", b"3")})
    assert place.start("broker", str(network.path)).wait(60) == 1
    text = (place.directory / "process-0.log").read_text()
    assert f"store {folder} cannot be read: it has format 3" in text
    assert "Run the version that wrote it, or move the directory away" in text
