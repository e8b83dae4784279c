"""Group commit against a store that may be full: what is confirmed is durable, and room is found again."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tidings.protocol.node._commits import LAZY_NS, RETRY_NS, Commits
from tidings.protocol.node._effects import Commit
from tidings.protocol.node._records import opened, sealed

MS = 10**6


class Disk:
    """Holds at most so many bytes; a commit is made as a whole or refused, erasures ahead are always made."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.kept: dict[str, bytes] = {}

    @property
    def values(self) -> dict[str, bytes]:
        found = opened(self.kept)
        assert not found.damaged
        return found.kept

    def take(self, commit: Commit) -> bool:
        after = dict(self.kept)
        for key, value in commit.writes.items():
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        if not commit.is_ahead and _size(after) > max(self.room, _size(self.kept)):
            return False
        self.kept = after
        return True


def _size(kept: dict[str, bytes]) -> int:
    """How much the values take, without the time and without seals."""
    return sum(map(len, opened(kept).kept.values()))


def settle(commits: Commits, disk: Disk, now_ns: int, *, hurry: bool = False) -> list[int]:
    """Carry out commits until none is due now; the syncs that were confirmed."""
    confirmed: list[int] = []
    while (commit := commits.next(now_ns, hurry=hurry)) is not None:
        if disk.take(commit):
            confirmed += commits.done(now_ns)
        else:
            commits.refused(now_ns)
            hurry = False
    return confirmed


def test_writes_collect_while_a_commit_is_under_way_and_the_last_write_counts() -> None:
    commits, disk = Commits(), Disk(1_000)
    commits.write("a", b"1")
    commits.sync(1)
    first = commits.next(0)
    assert first is not None
    assert first.writes == {"a": sealed("a", b"1"), "clock/0": sealed("clock/0", b"0")}
    commits.write("a", None)
    commits.write("b", b"2")
    commits.write("b", b"3")
    commits.sync(2)
    assert commits.next(0) is None
    assert disk.take(first)
    assert commits.done(0) == [1]
    second = commits.next(5)
    assert second is not None
    assert second.writes == {"a": None, "b": sealed("b", b"3"), "clock/1": sealed("clock/1", b"5")}
    assert list(second.writes) == ["a", "b", "clock/1"]
    assert disk.take(second)
    assert commits.done(0) == [2]
    assert disk.values == {"b": b"3"}
    assert commits.is_idle


def test_the_last_write_of_a_key_comes_last() -> None:
    commits = Commits()
    for key, value in (("seen", b"1"), ("event/1", b"1"), ("event/2", b"2"), ("seen", b"2")):
        commits.write(key, value)
    commits.sync(1)
    first = commits.next(0)
    assert first is not None
    assert list(first.writes) == ["event/1", "event/2", "seen", "clock/0"]
    commits.write("event/1", b"3")
    commits.refused(0)
    settle(commits, disk := Disk(1_000), 0)
    assert list(disk.kept)[:3] == ["event/2", "seen", "event/1"]


def test_what_nobody_waits_for_is_committed_later() -> None:
    commits, disk = Commits(), Disk(1_000)
    commits.write("a", None)
    assert commits.next(5) is None
    assert commits.due_ns == 5 + LAZY_NS
    assert settle(commits, disk, 5 + LAZY_NS) == []
    assert commits.is_idle


def test_a_sync_of_nothing_is_confirmed_without_a_write() -> None:
    commits = Commits()
    commits.sync(7)
    commit = commits.next(0)
    assert commit is not None
    assert not commit.writes
    assert commits.done(0) == [7]


def test_erasures_that_may_go_ahead_make_room_for_what_waits() -> None:
    commits, disk = Commits(), Disk(100)
    for number in range(10):
        commits.write(f"old/{number}", bytes(10))
    commits.sync(1)
    assert settle(commits, disk, 0) == [1]
    commits.write("new", bytes(30))
    commits.sync(2)
    assert settle(commits, disk, 1) == []
    assert commits.is_full
    assert commits.due_ns == 1 + RETRY_NS
    for number in range(5):
        commits.write(f"old/{number}", None, ahead=True)
    assert settle(commits, disk, 2) == [], "it is tried again when its time has come, not with every write"
    assert settle(commits, disk, 1 + RETRY_NS) == [2]
    assert not commits.is_full
    assert disk.values.keys() == {"new", *(f"old/{number}" for number in range(5, 10))}


def test_erasures_that_depend_on_what_waits_are_not_made_before_it() -> None:
    commits, disk = Commits(), Disk(20)
    commits.write("registered", bytes(20))
    commits.sync(1)
    assert settle(commits, disk, 0) == [1]
    commits.write("elsewhere", bytes(25))
    commits.write("registered", None)
    commits.sync(2)
    assert settle(commits, disk, 1) == []
    assert settle(commits, disk, 1 + RETRY_NS) == []
    assert disk.values.keys() == {"registered"}


Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["store", "erase", "ahead", "sync", "wait", "room"]), st.integers(0, 5), st.integers(1, 9)
    ),
    max_size=60,
)


@given(steps=steps, room=st.integers(5, 30))
def test_whatever_is_confirmed_is_durable_and_with_room_everything_is(steps: Iterable[Step], room: int) -> None:
    commits, disk = Commits(), Disk(room)
    now_ns, token, serial = 0, 0, 0
    wanted: dict[str, bytes | None] = {}  # the last word on each key
    at_sync: dict[int, dict[str, bytes | None]] = {}

    def check(confirmed: list[int]) -> None:
        for each in confirmed:
            for key, value in at_sync[each].items():
                if wanted[key] == value:  # it was not written since
                    assert disk.values.get(key) == value

    for kind, which, size in steps:
        key = f"k{which}"
        if kind == "store":
            serial += 1
            wanted[key] = bytes([serial % 256]) * size
            commits.write(key, wanted[key])
        elif kind in ("erase", "ahead"):
            wanted[key] = None
            commits.write(key, None, ahead=kind == "ahead")
        elif kind == "sync":
            token += 1
            at_sync[token] = dict(wanted)
            commits.sync(token)
        elif kind == "room":
            disk.room = 5 * size
        else:
            now_ns += size * 300 * MS
        check(settle(commits, disk, now_ns))
    disk.room = 10_000
    for _ in range(3):
        now_ns += LAZY_NS + RETRY_NS
        check(settle(commits, disk, now_ns, hurry=True))
    assert commits.is_idle
    assert disk.values == {key: value for key, value in wanted.items() if value is not None}
