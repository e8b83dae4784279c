"""Ours: subscribers move too, where they allow it, and nobody is made worse off.

Moving publishers alone helps little where the readers of each are scattered: wherever it goes, most are far. If readers
may come nearer to what they read, the events of a publisher need not leave the neighbourhood of its home.

Rules:

- A reader moves to the broker where it causes the least traffic: the events that brokers on the path would handle for
  it alone, over all publishers that it reads; among equals to where its own delay is least, then it stays.
- Its own mean delay (access, path and matching) must not rise. What others wait for can only get less traffic, but for
  the brokers that the new path leads over: with `room`, no broker may come to handle more than that many events a
  second, nor more than it does now if that is more already.
- Readers take turns until nobody moves. A move that saves no traffic is made too, if the reader gets its events sooner:
  where several readers at one broker want the same events, none of them saves anything by itself, and all together do.
  Every move lowers the traffic or, at equal traffic, somebody's delay, so this ends.

Theory of operation. For each publisher and broker the number of readers behind the broker that match each traced event
is kept; an event is handled where that number is above 0, so a reader's own part can be taken out and put in elsewhere.
The traffic of all brokers as a new place follows in one pass down the publisher's tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidings.compiled import compiled
from tidings.errors import InputError
from tidings.routing import Tree

__all__ = ["Reader", "ReaderPlan", "Source", "place_readers"]

_ROUNDS_MAX: Final = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """One publisher where it is: its tree, its rate, and the time that an event takes from it to each broker."""

    tree: Tree
    rate_per_s: float
    events: int
    reach_ns: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.events < 1 or not 0.0 <= self.rate_per_s < float("inf"):
            raise InputError("a source needs at least one traced event and a finite rate of 0 or more")
        if self.reach_ns.shape != self.tree.parent.shape:
            raise InputError(f"reach_ns has shape {self.reach_ns.shape}: one time for each broker is needed")


@dataclass(frozen=True, kw_only=True, eq=False)
class Reader:
    """One subscriber: where it is, which traced events of which sources it matches, and how far each broker is.

    `matches` holds a flag for each traced event, by the number of the source. A reader that is not `movable` stays.
    """

    broker: int
    matches: dict[int, NDArray[np.bool_]]
    access_ns: NDArray[np.int64]
    movable: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class ReaderPlan:
    """Where each reader should be; traffic is in events handled by all brokers per second."""

    homes: tuple[int, ...]
    targets: tuple[int, ...]
    messages_per_s: float
    messages_per_s_now: float
    rounds: int


def place_readers(
    sources: Sequence[Source], readers: Sequence[Reader], *, room_per_s: ArrayLike | None = None
) -> ReaderPlan:
    """Places for readers that lower the traffic of the network, at nobody's expense."""
    state = _Traffic(sources, readers, None if room_per_s is None else np.asarray(room_per_s, np.float64))
    before = float(state.rate.sum())
    rounds = 0
    while rounds < _ROUNDS_MAX:
        rounds += 1
        moved = [number for number, reader in enumerate(readers) if reader.movable and state.improve(number)]
        if not moved:
            break
    return ReaderPlan(
        homes=tuple(reader.broker for reader in readers),
        targets=tuple(state.homes),
        messages_per_s=float(state.rate.sum()),
        messages_per_s_now=before,
        rounds=rounds,
    )


class _Traffic:
    """Who is where, how many readers behind each broker match each event, and what each broker handles a second."""

    def __init__(
        self, sources: Sequence[Source], readers: Sequence[Reader], room_per_s: NDArray[np.float64] | None
    ) -> None:
        self.sources, self.readers = sources, readers
        self.homes = [reader.broker for reader in readers]
        brokers = len(sources[0].tree.parent) if sources else 0
        self.behind = [np.zeros((brokers, source.events), np.int32) for source in sources]
        self.rate = np.zeros(brokers)
        for number, source in enumerate(sources):
            for reader in (reader for reader in readers if number in reader.matches):
                self._check(reader, number)
                _count(self.behind[number], source.tree.parent, reader.broker, reader.matches[number], 1)
            # the home handles all that its publisher sends, matched or not
            self.rate += (self.behind[number] > 0).sum(axis=1) * source.rate_per_s / source.events
            unmatched = int((self.behind[number][source.tree.root] == 0).sum())
            self.rate[source.tree.root] += unmatched * source.rate_per_s / source.events
        self.most = np.full(brokers, np.inf) if room_per_s is None else np.maximum(room_per_s, self.rate)

    def _check(self, reader: Reader, number: int) -> None:
        source = self.sources[number]
        if reader.matches[number].shape != (source.events,):
            raise InputError(
                f"a reader has {len(reader.matches[number])} flags for source {number}, "
                f"which traced {source.events} events"
            )
        if reader.broker not in source.tree:
            raise InputError(f"a reader is at broker {reader.broker}, which source {number} does not reach")

    def improve(self, number: int) -> bool:
        reader, home = self.readers[number], self.homes[number]
        brokers = len(self.rate)
        added = np.zeros((len(reader.matches), brokers), np.float64)
        delay = np.zeros(brokers)
        open_to = np.ones(brokers, bool)
        for place, (stream, flags) in enumerate(reader.matches.items()):
            source = self.sources[stream]
            _count(self.behind[stream], source.tree.parent, home, flags, -1)
            alone = _alone(source.tree.order, source.tree.parent, self.behind[stream], flags)
            added[place] = alone * (source.rate_per_s / source.events)
            read_per_s = float(flags.sum()) * source.rate_per_s / source.events
            delay += read_per_s * (source.reach_ns + reader.access_ns)
            open_to &= source.tree.position >= 0
        traffic = added.sum(axis=0)
        target = home
        less = traffic < traffic[home] * (1 - 1e-12)
        sooner = (traffic <= traffic[home]) & (delay < delay[home])
        allowed = np.flatnonzero(open_to & (delay <= delay[home]) & (less | sooner))
        for candidate in allowed[np.lexsort((allowed, delay[allowed], traffic[allowed]))].tolist():
            if self._has_room(reader, home, candidate):
                target = candidate
                break
        for stream, flags in reader.matches.items():
            self.rate += self._change(stream, flags, home, target)
            _count(self.behind[stream], self.sources[stream].tree.parent, target, flags, 1)
        self.homes[number] = target
        return target != home

    def _change(self, stream: int, flags: NDArray[np.bool_], home: int, target: int) -> NDArray[np.float64]:
        """What each broker handles more, once the reader is taken out of the counts at home and put in at the target.

        The root handles everything already.
        """
        source = self.sources[stream]
        change = np.zeros(len(self.rate))
        for broker, sign in ((home, -1.0), (target, 1.0)):
            for passed in source.tree.path(broker)[1:]:
                own = flags & (self.behind[stream][passed] == 0)
                change[passed] += sign * float(own.sum()) * source.rate_per_s / source.events
        return change

    def _has_room(self, reader: Reader, home: int, target: int) -> bool:
        change = sum(
            (self._change(stream, flags, home, target) for stream, flags in reader.matches.items()),
            np.zeros(len(self.rate)),
        )
        return bool((self.rate + change <= self.most * (1 + 1e-12)).all())


@compiled
def _count(
    behind: NDArray[np.int32], parent: NDArray[np.int32], broker: int, flags: NDArray[np.bool_], change: int
) -> None:
    """Add a reader at this broker, or take one away: it is behind every broker up to the publisher's home."""
    while broker >= 0:
        for event in range(len(flags)):
            if flags[event]:
                behind[broker, event] += change
        broker = parent[broker]


@compiled
def _alone(
    order: NDArray[np.int32], parent: NDArray[np.int32], behind: NDArray[np.int32], flags: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """For each broker how many times brokers would handle an event for this reader alone, if it were there.

    The home handles all events of its publisher anyway.
    """
    found = np.zeros(len(parent), np.float64)
    for place in range(1, len(order)):
        broker = order[place]
        extra = 0
        for event in range(len(flags)):
            if flags[event] and behind[broker, event] == 0:
                extra += 1
        found[broker] = found[parent[broker]] + extra
    return found
