"""The spool: what was kept is there after a restart, once, and a batch is the same however often it is read."""

from pathlib import Path

import msgspec
import pytest

from tidings.errors import ConfigurationError
from tidings.live import Delivery, StoreError
from tidings.live.client.columns import EventRow
from tidings.pipeline.source import _spool
from tidings.pipeline.source._spool import Spool

HOUR_S = 3600.0


def event(n: int, publisher: str = "p") -> Delivery:
    return Delivery(
        subscription="s",
        publisher=publisher,
        epoch=7,
        sequence=n,
        attributes={"n": n},
        payload=b"x" * n,
        age_s=0.25,
        late=n % 2 == 1,
    )


def numbers(spool: Spool) -> list[int]:
    found = spool.records(spool.first, spool.end)
    return [msgspec.msgpack.decode(each, type=EventRow).sequence for each in found]


def test_what_was_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, "job", HOUR_S)
    assert spool.keep([event(n) for n in range(5)])
    before = spool.records(0, 5)
    assert not spool.forget(2)
    spool.close()
    again = Spool.open(tmp_path, "job", HOUR_S)
    assert (again.id, again.first, again.end) == (spool.id, 2, 5)
    assert again.records(2, 5) == before[2:]
    record = msgspec.msgpack.decode(before[3], type=EventRow)
    assert (record.publisher, record.epoch, record.sequence, record.age_ns) == ("p", 7, 3, 250_000_000)
    assert (record.attributes, record.payload, record.late) == ({"n": 3}, b"xxx", True)


def test_an_event_that_comes_again_is_not_kept_again(tmp_path: Path) -> None:
    """Also in the next life, and after Spark has committed it; another publisher's is another event."""
    spool = Spool.open(tmp_path, "job", HOUR_S)
    spool.keep([event(0), event(1)])
    spool.keep([event(1), event(2)])
    spool.forget(3)
    spool.close()
    again = Spool.open(tmp_path, "job", HOUR_S)
    again.keep([event(0), event(2), event(3), event(3, "q")])
    assert (again.first, numbers(again)) == (3, [3, 3])


def test_ids_are_forgotten_when_no_copy_can_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After their time, and the oldest when there are too many: neither memory nor disk grows with the stream."""
    monkeypatch.setattr(_spool, "MAX_SEEN", 3)
    spool = Spool.open(tmp_path, "job", HOUR_S)
    for n in range(10):
        spool.keep([event(n)])
    assert len(spool._ids) == len(spool._seen) == 3
    spool.forget(10)
    assert len(spool._store.load()) == 3 + 1  # and the head
    spool.close()
    short = Spool.open(tmp_path, "job", -1.0)
    short.keep([event(10)])
    short.keep([event(11)])
    assert len(short._ids) <= 3
    assert numbers(short) == [10, 11]


def test_there_is_room_until_the_bound_and_again_when_spark_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_spool, "MAX_EVENTS", 4)
    spool = Spool.open(tmp_path, "job", HOUR_S)
    assert [spool.keep([event(n)]) for n in range(4)] == [True, True, True, False]
    assert not spool.keep([event(4)])  # what was under way is kept even so
    assert [spool.forget(n) for n in (1, 2, 3)] == [False, True, False]
    monkeypatch.setattr(_spool, "MAX_BYTES", 100)
    assert not spool.keep([event(200)])


def test_a_batch_is_cut_by_events_and_by_bytes(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, "job", HOUR_S)
    spool.keep([event(n) for n in range(10)])
    assert spool.end_of(2, 3, 1 << 20) == 5
    assert spool.end_of(2, 100, 1 << 20) == 10
    assert spool.end_of(2, 100, 1) == 3  # never nothing, if there is something
    assert spool.end_of(10, 100, 1) == 10


def test_a_checkpoint_of_another_spool_is_refused(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, "job", HOUR_S)
    spool.keep([event(n) for n in range(10)])
    spool.forget(4)
    assert spool.require(spool.offset(4)) == 4
    for offset in (spool.offset(3), spool.offset(11), {"spool": "another", "next": 5}):
        with pytest.raises(
            ConfigurationError, match=r"option spool: the checkpoint goes on at event .* new checkpoint"
        ):
            spool.require(offset)


def test_a_spool_belongs_to_one_client_and_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spool, "OPEN_WAIT_S", 0.1)
    spool = Spool.open(tmp_path, "job", HOUR_S)
    with pytest.raises(ConfigurationError, match=r"option spool: .* in use by another process"):
        Spool.open(tmp_path, "job", HOUR_S)
    spool.close()
    with pytest.raises(ConfigurationError, match="is that of client 'job', and name is 'other'"):
        Spool.open(tmp_path, "other", HOUR_S)
    Spool.open(tmp_path, "job", HOUR_S).close()


def test_a_damaged_record_is_an_error(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, "job", HOUR_S)
    spool.keep([event(0)])
    key = f"event/{0:020}"
    stored = spool._store.load()[key]
    spool._store.commit({key: stored[:-1] + b"?"})
    spool.close()
    with pytest.raises(StoreError, match="1 records are damaged"):
        Spool.open(tmp_path, "job", HOUR_S)


def test_a_number_is_told_when_it_is_durable_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a checkpoint could go on at an event that no disk has."""
    spool = Spool.open(tmp_path, "job", HOUR_S)
    commit, told = spool._store.commit, []

    def watched(writes: dict[str, bytes | None]) -> None:
        told.append(spool.end)
        commit(writes)

    monkeypatch.setattr(spool._store, "commit", watched)
    spool.keep([event(0), event(1)])
    spool.keep([event(2)])
    assert (told, spool.end) == ([0, 2], 3)
