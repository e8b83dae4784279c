"""Records of the store: what is damaged is found and reported, the rest goes on; clocks and epochs never go back."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.protocol import Broker, BrokerSettings, FormatError
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.links._peers import Peer
from tidings.protocol.node import (
    Commit,
    ConnectionLimits,
    Node,
    NodeEffect,
    Opened,
    Preamble,
    Report,
    clock_offset_ns,
    next_epoch,
    opened,
    sealed,
)
from tidings.protocol.node._commits import Commits
from tidings.protocol.wire import Entry, Interest

SECOND = 10**9


@given(key=st.text(), value=st.binary(), data=st.data())
def test_a_record_is_what_was_sealed_or_is_damaged(key: str, value: bytes, data: st.DataObject) -> None:
    record = sealed("k" + key, value)
    assert opened({"k" + key: record}).kept == {"k" + key: value}
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    flipped = bytearray(record)
    flipped[bit // 8] ^= 1 << bit % 8
    assert opened({"k" + key: bytes(flipped)}).damaged == ("k" + key,)
    assert opened({"other" + key: record}).damaged == ("other" + key,)
    for length in range(len(record)):
        assert opened({"k" + key: record[:length]}).damaged == ("k" + key,)


def test_the_last_time_is_that_of_the_sound_record() -> None:
    stored = {"clock/0": sealed("clock/0", b"7"), "clock/1": sealed("clock/1", b"9")}
    assert opened(stored).noted_ns == 9
    assert opened(stored | {"clock/1": b"torn"}).noted_ns == 7
    assert opened({}).noted_ns == 0


def test_a_later_format_is_refused() -> None:
    with pytest.raises(FormatError, match="format 3, and this version knows formats up to 2"):
        opened({"format": sealed("format", b"3")})


def test_a_clock_does_not_go_back_and_an_epoch_rises() -> None:
    assert 50 + clock_offset_ns(wall_ns=1_000, steady_ns=50, noted_ns=900) == 1_000
    assert 50 + clock_offset_ns(wall_ns=1_000, steady_ns=50, noted_ns=2_000) == 2_000
    assert next_epoch(7, 10**18) == 8
    assert next_epoch(None, 10**18) == 10**12
    assert next_epoch(None, 0) == 1


def node_of(found: Opened) -> Node:
    broker = Broker(BrokerSettings(name="a", neighbours=frozenset({"b"})), found.kept)
    limits = ConnectionLimits(max_frame_bytes=100_000)
    return Node(broker, preamble=Preamble("broker", "a"), limits=limits, chance=lambda: 0.5, found=found)


def lived(stored: dict[str, bytes], now_ns: int) -> tuple[Node, list[NodeEffect]]:
    """A node starts from a store, and its first commit is carried out."""
    node = node_of(Node.read(stored))
    effects = node.start(now_ns)
    for commit in [effect for effect in effects if isinstance(effect, Commit)]:
        for key, value in commit.writes.items():
            stored.pop(key, None)
            if value is not None:
                stored[key] = value
        effects += node.committed(now_ns)
    return node, effects


def test_damage_is_reported_once_and_erased_and_the_next_epoch_is_higher() -> None:
    stored: dict[str, bytes] = {}
    first, effects = lived(stored, 5 * SECOND)
    assert not [effect for effect in effects if isinstance(effect, Report)]
    assert stored.keys() == {"format", "epoch", "clock/0"}
    stored["epoch"] = stored["epoch"][:-1]
    stored["event/1/2/p"] = b"half of an event"
    second, effects = lived(stored, 6 * SECOND)
    (report,) = [effect for effect in effects if isinstance(effect, Report)]
    assert (report.level, report.event, report.facts["records"]) == ("error", "store damaged", 2)
    assert report.facts["kinds"] == {"epoch": 1, "event": 1} == second.damaged
    assert isinstance(first.machine, Broker)
    assert isinstance(second.machine, Broker)
    assert second.machine.epoch > first.machine.epoch
    third, effects = lived(stored, 7 * SECOND)
    assert not [effect for effect in effects if isinstance(effect, Report)]
    assert not third.damaged
    assert "event/1/2/p" not in stored


@pytest.mark.parametrize("damaged", ["wanted/1/b/c/s", "interest/b", "unread/00", "wante\x00/1/b/c/s"])
def test_a_broker_that_lost_part_of_a_table_is_not_ready_before_it_has_it_again(damaged: str) -> None:
    kept = {"ready": b"", "interest/b": Broker(BrokerSettings(name="a")).gossip.withdrawn("b", None)}
    kept.pop(damaged, None)
    stored = {key: sealed(key, value) for key, value in kept.items()}
    assert lived(dict(stored), SECOND)[0].machine.is_ready  # type: ignore[attr-defined]
    node, _ = lived(stored | {damaged: b"torn"}, SECOND)
    assert isinstance(node.machine, Broker)
    assert not node.machine.is_ready
    left = stored | {damaged: b"torn"}
    lived(left, SECOND)
    again, effects = lived(left, 2 * SECOND)  # the first incarnation ended before it received anything
    assert not [effect for effect in effects if isinstance(effect, Report)]
    assert not again.machine.is_ready  # type: ignore[attr-defined]
    assert not again.machine.gossip.interests.is_known("b")  # type: ignore[attr-defined]


def gossip_of(stored: dict[str, bytes], commits: Commits) -> Gossip:
    """What a broker knows of others when it begins with this store; what it learns is written to it."""
    gossip = Gossip(
        BrokerSettings(name="a"),
        send=lambda *_: None,
        send_all=lambda *_: None,
        neighbours=list,
        store=commits.write,
        erase=lambda key: commits.write(key, None),
        refused=Counter(),
    )
    for key, value in sorted(opened(stored).kept.items()):
        gossip.restore(key.partition("/")[0], value, SECOND)
    gossip.begin(1, SECOND)
    return gossip


def written(commits: Commits) -> dict[str, bytes | None]:
    """The next commit, which succeeds."""
    commit = commits.next(SECOND, hurry=True)
    assert commit is not None
    commits.done(SECOND)
    return dict(commit.writes)


def kept(stored: dict[str, bytes], writes: Iterable[tuple[str, bytes | None]]) -> dict[str, bytes]:
    """What a store holds after these writes."""
    return {key: value for key, value in (stored | dict(writes)).items() if value is not None}


def test_a_table_that_a_torn_commit_leaves_between_two_versions_has_no_version() -> None:
    commits, peer = Commits(), Peer("b", "broker", Broker(BrokerSettings(name="a"))._outbox(3))
    gossip = gossip_of({}, commits)
    entries = {name: Entry(name, "x > 1", None, 1.0, 0) for name in ("c/s", "c/t", "d/s", "d/t")}
    first = (entries["c/s"], entries["c/t"])
    gossip.on_interest(Interest("b", 1, 1, 3, 0, 0, first), peer, SECOND)
    stored = kept({}, written(commits).items())
    second = (entries["d/s"], entries["d/t"])
    gossip.on_interest(Interest("b", 1, 2, 4, 3, 0, second, ("c/s", "c/t")), peer, SECOND)
    writes = list(written(commits).items())
    versions = []
    for count in range(len(writes) + 1):  # so many of the writes have reached the disk
        interests = gossip_of(kept(stored, writes[:count]), Commits()).interests
        versions.append(interests.versions()["b"][1])
        assert versions[-1] in (0, {first: 3, second: 4}.get(tuple(interests.entries("b").values())))
    assert (versions[0], versions[-1]) == (3, 4)
