"""Simulated sockets behave as TCP does: in order, nothing lost, bounded, and gone in the ways in which TCP goes."""

import numpy as np

from tidings.protocol.node import prefixed
from tidings.storm._dice import Dice
from tidings.storm._network import StormNetwork
from tidings.storm._sockets import Path, Socket, SocketFigures, connect

SECOND = 10**9


class End:
    """A host that keeps what it is told."""

    def __init__(self, *, reads: bool = True) -> None:
        self.is_powered = True
        self.reads = reads
        self.came = b""
        self.pieces = 0
        self.reasons: list[str] = []
        self.congestion: list[bool] = []

    def stir(self, socket: Socket) -> None:
        if self.reads:
            self.read(socket)

    def read(self, socket: Socket) -> None:
        pieces = socket.take()
        self.pieces += len(pieces)
        self.came += b"".join(pieces)

    def ended(self, socket: Socket, reason: str) -> None:  # noqa: ARG002
        self.reasons.append(reason)

    def congested(self, socket: Socket, is_congested: bool) -> None:  # noqa: ARG002
        self.congestion.append(is_congested)


class Pair:
    """A connection from `a` to `b`."""

    def __init__(self, *, reads: bool = True, **figures: float) -> None:
        self.time = StormNetwork(Dice(np.random.default_rng(3)), lambda *_: None)
        self.time.figures = SocketFigures(**figures)  # type: ignore[arg-type]
        self.a, self.b = End(), End(reads=reads)
        self.there, self.back = Path("a", "b", 1e6, 5e6, 10.0), Path("b", "a", 1e6, 5e6, 10.0)
        self.near, self.far = connect(self.time, (self.a, "near", self.there), (self.b, "far", self.back))

    def run(self, seconds: float) -> None:
        self.time.run(self.time.now_ns + round(seconds * SECOND))

    def cut(self, change: int) -> None:
        self.there.cut(change)
        self.back.cut(change)


def frames(count: int) -> list[bytes]:
    return prefixed([bytes([number % 251]) * (1 + number % 50) for number in range(count)])


def test_bytes_arrive_in_order_however_they_are_split() -> None:
    pair = Pair(splitting=0.5)
    for _ in range(40):
        pair.near.write(frames(20))
        pair.run(0.001)
    pair.run(1)
    assert pair.b.came == b"".join(frames(20)) * 40
    assert pair.b.pieces > 40
    assert pair.time.covered["split_frames"] > 10


def test_what_is_not_read_waits_with_the_sender_and_congests_it() -> None:
    pair = Pair(reads=False, buffer_bytes=1_000, high_bytes=1_500, low_bytes=500)
    for _ in range(10):
        pair.near.write(frames(20))
    pair.run(1)
    assert pair.a.congestion == [True]
    assert pair.far.arrived_bytes == 1_000
    while pair.far.arrived:
        pair.b.read(pair.far)
        pair.run(0.1)
    assert pair.a.congestion == [True, False]
    assert pair.b.came == b"".join(frames(20)) * 10


def test_a_short_cut_holds_bytes_back_and_loses_none() -> None:
    pair = Pair()
    pair.near.write(frames(5))
    pair.cut(1)
    pair.near.write(frames(5))
    pair.run(3)
    assert pair.b.came == b""
    pair.cut(-1)
    pair.run(3)
    assert pair.b.came == b"".join(frames(5)) * 2
    assert not pair.a.reasons


def test_a_long_cut_resets_whoever_has_sent_something_and_leaves_the_other_half_open() -> None:
    pair = Pair(unheard_ns=4 * SECOND)
    pair.cut(1)
    pair.near.write(frames(1))
    pair.run(5)
    assert pair.a.reasons == ["the other end does not acknowledge"]
    assert not pair.b.reasons
    pair.cut(-1)
    pair.run(5)
    assert not pair.b.reasons
    pair.far.write(frames(1))
    pair.run(1)
    assert pair.b.reasons == ["reset by the other end"]


def test_an_acknowledgement_that_does_not_come_back_counts_as_none() -> None:
    pair = Pair(unheard_ns=4 * SECOND)
    pair.back.cut(1)
    pair.near.write(frames(1))
    pair.run(1)
    assert pair.b.came == b"".join(frames(1))
    pair.run(5)
    assert pair.a.reasons == ["the other end does not acknowledge"]


def test_without_power_nobody_is_told_until_it_sends_after_the_restart() -> None:
    pair = Pair(unheard_ns=60 * SECOND)
    pair.b.is_powered = False
    pair.far.vanish(power=True)
    pair.near.write(frames(1))
    pair.run(5)
    assert not pair.a.reasons
    pair.b.is_powered = True
    pair.near.write(frames(1))
    pair.run(1)
    assert pair.a.reasons == ["reset by the other end"]


def test_who_closes_sends_what_it_has_first() -> None:
    pair = Pair(buffer_bytes=100)
    pair.near.write(frames(20))
    pair.near.close(at_once=False)
    pair.run(3)
    assert pair.b.came == b"".join(frames(20))
    assert pair.b.reasons == ["the other end closed it"]
    assert pair.a.reasons == ["closed"]
    other = Pair()
    other.near.close(at_once=True)
    other.run(1)
    assert (other.a.reasons, other.b.reasons) == (["closed"], ["reset by the other end"])
