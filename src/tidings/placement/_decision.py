"""From what a trace shows of a publisher to where it should be, and what is to be expected of that.

A driver that has traces (the Spark pipeline) puts what it measured into three values and asks for the rest here:

- `Times`: how long events take at each broker and on each link, of all publishers together;
- `Traced`: one publisher: its home, its rate, which broker delivered which of its traced events, and what was promised
  for them;
- `Aim`: what is to be made small, and how much better it has to get before anybody moves.

`choose` is GRAPE by load or delay, or ours by deadlines; with `on-time` and a weight below 100, the share that is late
has priority in the sense of GRAPE, and the load decides among the candidates that it leaves. `figures_at` says what
brokers, deliveries and deadlines come to with the publisher at any broker.

What one move changes is computed with the times as they were measured; what all moves change together with waits that
follow the load (`Times.under`).

On an overlay without cycles a publisher's tree is the overlay itself. On a mesh it is the links that its events used,
the most used first; a move is judged as if events kept to that tree, since which links routing would take from a new
home is not in a trace.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.placement._defaults import Metric
from tidings.placement._evaluation import evaluate, handled_from
from tidings.placement._joint import Stream
from tidings.placement._on_time import Spread, Wanted, on_time_shares, select_on_time
from tidings.placement._selection import select
from tidings.placement._sessions import WORD_BITS, TraceSession, WordArray
from tidings.placement._times import Times
from tidings.routing import NO_BROKER, NO_LINK, Overlay, Tree, shortest_path_tree, tree_of_parents

__all__ = [
    "Aim",
    "Figures",
    "Objective",
    "Traced",
    "choose",
    "choose_on_time",
    "figures_at",
    "loads_at",
    "tree_of_use",
]

Objective = Literal["load", "delay", "on-time"]
OBJECTIVES: Final[tuple[Objective, ...]] = ("load", "delay", "on-time")

_NS: Final = 1e9
_SHARES: Final = 10**12
"""Shares that are late are compared as whole numbers of this part: sums of thousands of rounded terms."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Aim:
    """What publishers are placed for: `objective` has priority with `weight` 0 to 100, and a move must gain more than
    `hysteresis` (a share of what it is now; of deliveries on time, an absolute share)."""

    objective: Objective = "load"
    weight: float = 100.0
    hysteresis: float = 0.01

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ConfigurationError(f"there is no objective {self.objective!r}: choose load, delay or on-time")
        if not 0.0 <= self.weight <= 100.0:
            raise ConfigurationError(f"the weight of {self.objective} is {self.weight:g}: it must be from 0 to 100")
        if not 0.0 <= self.hysteresis < 1.0:
            raise ConfigurationError(f"a hysteresis of {self.hysteresis:g}: it must be a share, 0 or more and below 1")


@dataclass(frozen=True, kw_only=True, eq=False)
class Traced:
    """One publisher as the trace shows it. `bits` and `deliveries` are by broker; `traced` is how many of the events
    that bits stand for were published; `wanted` is what subscribers were promised for them, delivered or not."""

    name: str
    rate_per_s: float
    tree: Tree
    bits: WordArray
    deliveries: NDArray[np.int64]
    traced: int
    wanted: Wanted
    ping_ns: int = 0

    @property
    def home(self) -> int:
        return self.tree.root

    @property
    def deliveries_per_s(self) -> float:
        return float(self.deliveries.sum()) * self.rate_per_s / self.traced

    def session(self, overlay: Overlay, times: Times) -> TraceSession:
        """The trace session of GRAPE that these facts make."""
        return TraceSession(
            overlay=overlay,
            tree=self.tree,
            events=self.bits.shape[1] * WORD_BITS,
            bits=self.bits,
            deliveries=self.deliveries,
            to_client_ns=_whole(times.to_client.mean_ns),
            onward_ns=_whole(times.onward(overlay).mean_ns),
            ping_ns=np.full(overlay.broker_count, self.ping_ns, np.int64),
            traced=self.traced,
        )

    def stream(self, overlay: Overlay, times: Times) -> Stream:
        """What `place_jointly` takes."""
        return Stream(session=self.session(overlay, times.without_waits()), rate_per_s=self.rate_per_s)


class Figures(NamedTuple):
    """A publisher at some broker: events that brokers handle for it, the mean delay of its deliveries, and the share of
    what was promised that is on time (None: nothing was promised a deadline)."""

    messages_per_s: float
    delay_s: float
    on_time: float | None


def choose(traced: Traced, overlay: Overlay, times: Times, aim: Aim) -> int:
    """The broker where this publisher should be by itself; its home, where nothing is better by enough."""
    session = traced.session(overlay, times)
    candidates = evaluate(session)
    if aim.objective != "on-time":
        metric: Metric = aim.objective
        return select(candidates, metric=metric, weight=aim.weight, hysteresis=aim.hysteresis).target
    shares = _shares(traced, session, times)
    if aim.weight == 100.0:
        asked = round(float(traced.wanted.deliveries.sum()))
        return select_on_time(candidates, shares, hysteresis=aim.hysteresis, traced_deliveries=asked)
    late = np.rint((1.0 - shares) * _SHARES).astype(np.int64)
    judged = replace(candidates, total_delay_ns=late)
    return select(judged, metric="delay", weight=aim.weight, hysteresis=aim.hysteresis).target


def choose_on_time(
    traced: Traced, overlay: Overlay, times: Times, *, hysteresis: float, tree_at: Callable[[int], Tree]
) -> int:
    """The broker where most of what was promised would be on time, judged twice.

    `choose` judges every broker by the tree of the present home; from a new home events go by the tree of that one
    (`tree_at`), so the gain of the broker that was chosen has to be as large by its own tree too.
    """
    chosen = choose(traced, overlay, times, Aim(objective="on-time", hysteresis=hysteresis))
    if chosen == traced.home:
        return chosen
    there = replace(traced, tree=tree_at(chosen))
    return chosen if _gain(traced, there, overlay, times) > hysteresis else traced.home


def _gain(here: Traced, there: Traced, overlay: Overlay, times: Times) -> float:
    """What the share on time gains by a move, each home by its own tree."""
    then, now = (figures_at(each, overlay, times, each.home).on_time or 0.0 for each in (there, here))
    return then - now


def figures_at(traced: Traced, overlay: Overlay, times: Times, broker: int) -> Figures:
    """What it comes to with the publisher at this broker."""
    session = traced.session(overlay, times)
    candidates = evaluate(session)
    place = candidates.at(broker)
    has_deadlines = bool(np.isfinite(traced.wanted.deadline_s).any())
    return Figures(
        messages_per_s=float(loads_at(traced, session, broker).sum()),
        delay_s=float(candidates.average_delay_ns[place]) / _NS,
        on_time=float(_shares(traced, session, times)[place]) if has_deadlines else None,
    )


def loads_at(traced: Traced, session: TraceSession, broker: int) -> Floats:
    """Events a second that each broker handles for this publisher; its home handles all it sends, wanted or not."""
    handled = handled_from(session, broker)[0]
    handled[broker] = traced.traced
    return handled.astype(np.float64) * (traced.rate_per_s / traced.traced)


def _shares(traced: Traced, session: TraceSession, times: Times) -> Floats:
    """For each candidate the share on time; what is promised where no event can get is late from everywhere."""
    wanted = traced.wanted
    inside = traced.tree.position[wanted.broker] >= 0
    reached = Wanted(
        broker=wanted.broker[inside], deadline_s=wanted.deadline_s[inside], deliveries=wanted.deliveries[inside]
    )
    onward = times.onward(session.overlay)
    spread = Spread(
        onward_least_ns=np.minimum(np.floor(onward.least_ns), session.onward_ns).astype(np.int64),
        onward_variance_ns2=onward.variance_ns2,
        to_client_variance_ns2=times.to_client.variance_ns2,
    )
    asked = float(wanted.deliveries.sum())
    part = float(reached.deliveries.sum()) / asked if asked > 0.0 else 0.0
    return on_time_shares(session, reached, spread) * part


def tree_of_use(overlay: Overlay, home: int, used: dict[int, int]) -> Tree:
    """The tree of a publisher at `home`, whose events used these links so many times."""
    joined = {frozenset(pair) for pair in zip(overlay.source.tolist(), overlay.target.tolist(), strict=True)}
    if len(joined) == overlay.broker_count - 1:
        return shortest_path_tree(overlay, home, weight="hops", destinations=())
    parents = np.full(overlay.broker_count, NO_BROKER, np.int32)
    reached: set[int] = set()
    frontier = [(0, NO_LINK, home)]
    while frontier:
        _, link, broker = heapq.heappop(frontier)
        if broker in reached:
            continue
        reached.add(broker)
        if link != NO_LINK:
            parents[broker] = overlay.source[link]
        for following in overlay.out_links[overlay.out_offsets[broker] : overlay.out_offsets[broker + 1]].tolist():
            if used.get(following, 0) > 0:
                heapq.heappush(frontier, (-used[following], following, int(overlay.target[following])))
    return tree_of_parents(overlay, home, parents)


def _whole(times_ns: Floats) -> NDArray[np.int64]:
    return np.rint(times_ns).astype(np.int64)
