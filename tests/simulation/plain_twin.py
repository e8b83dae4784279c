"""The same model once more, in plain Python: what the compiled event loop is compared with.

It shares with the loop what is not in question: the plan, the publications with their matches and the random streams
(`draw`). Everything else is written again, for reading: a copy holds a list of pairs, a queue is a list, the calendar
is `heapq`, the way on is looked up in the trees or the reachability figures, and a link evaluates its whole queue at
every decision, as the plain twin of the live queues does.
"""

import heapq
import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.scheduling.twins import PlainQueue

from tidings.compiled import lend
from tidings.model.scenario import Network
from tidings.scheduling import Waiting, strategy
from tidings.scheduling._kernels import HOPELESS_QUANTILE
from tidings.scheduling._strategies import FIFO, RL, TRIAGE
from tidings.simulation._draws import draw, uniform, whole_ns
from tidings.simulation._layout import (
    ARRIVED,
    NANOSECONDS,
    NEVER_NS,
    PROCESSED,
    PUBLISHED,
    SERVED,
    STEPS,
    TRAFFIC,
    TRANSMITTED,
    Array,
)
from tidings.simulation._links import deletion_ns
from tidings.simulation._options import Options
from tidings.simulation._plan import SimulationPlan, plan
from tidings.simulation._publications import chunks
from tidings.simulation._result import Batches, Result, make_result

__all__ = ["Decision", "counted", "first_in_sequence", "simulate_plainly"]


@dataclass(eq=False)
class _Event:
    published: int
    publisher: int
    sequence: int
    size_kb: float
    allowed: dict[int, int]
    is_counted: bool
    tree: int
    delivered: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    copies: int = 0


@dataclass(eq=False)
class _Copy:
    event: _Event
    link: int
    wanted: list[int]
    figures: tuple[Array, ...] = ()
    delete_at: int = NEVER_NS


def simulate_plainly(network: Network, options: Options | None = None) -> Result:
    """The result that `simulate` must give, apart from the time it took."""
    chosen = Options() if options is None else options
    run = _Run(plan(network, chosen))
    for chunk in chunks(run.plan, events=chosen.chunk_events, sample=1.0, is_traced=False):
        for row in chunk.events:
            run.advance(int(row["time"]))
            run.publish(row, chunk.matches[row["first"] : row["first"] + row["count"]].tolist())
        run.advance(chunk.horizon_ns)
        run.batches.count(chunk.horizon_ns, run.subscriptions)
    run.advance(run.plan.drained_ns)
    return run.finish()


class Decision(PlainQueue[Any]):
    """One decision of a link among copies, at time 0 of its own; when a copy is deleted is known."""

    def choice(self, queue: list[Any], now: int) -> int:
        self._now = now
        self._queue = [
            Waiting(
                copy, (copy.event.published - now) * (1.0 / NANOSECONDS), copy.event.size_kb, np.array(copy.figures)
            )
            for copy in queue
        ]
        return self._choose(0.0)

    def _deletion_time_s(self, waiting: Waiting[Any]) -> float:
        delete_at = waiting.event.delete_at
        return (delete_at - self._now) * (1.0 / NANOSECONDS) if delete_at < NEVER_NS else math.inf


def first_in_sequence(queue: list[Any], chosen: int) -> int:
    """The place of the first of the chosen copy's publisher."""
    publisher = queue[chosen].event.publisher
    return min(
        (place for place, copy in enumerate(queue) if copy.event.publisher == publisher),
        key=lambda place: queue[place].event.sequence,
    )


def counted(control: dict[int, int], **rows: Array) -> Any:
    """The part of a world that results are made of."""
    return SimpleNamespace(control=control, **rows)


class _Run:
    def __init__(self, planned: SimulationPlan) -> None:
        self.plan, self.batches = planned, Batches(planned)
        self.distributions, self.subscriptions = lend(planned.distributions.copy()), planned.subscriptions.copy()
        self.links, self.brokers = planned.links.copy(), planned.brokers.copy()
        self.calendar: list[tuple[int, int, int, object]] = []
        self.order = self.steps = self.traffic = self.published = 0
        self.queues: list[list[_Copy]] = [[] for _ in self.links]
        self.sending: list[_Copy | None] = [None for _ in self.links]
        self.doors: list[list[_Copy]] = [[] for _ in self.brokers]
        self.serving: list[_Copy | None] = [None for _ in self.brokers]
        self.alive: set[_Copy] = set()

    # -- time --------------------------------------------------------------------------------------------------------

    def note(self, time: int, kind: int, what: object) -> None:
        heapq.heappush(self.calendar, (time, self.order, kind, what))
        self.order += 1

    def advance(self, until: int) -> None:
        """Let everything happen that happens before a time."""
        while self.calendar and self.calendar[0][0] < until:
            now, _, kind, what = heapq.heappop(self.calendar)
            self.steps += 1
            if kind == TRANSMITTED:
                assert isinstance(what, int)
                self.transmitted(what, now)
            elif kind == SERVED:
                assert isinstance(what, int)
                self.served(what, now)
            else:
                assert isinstance(what, _Copy)
                self.arrive(what, now) if kind == ARRIVED else self.process(what, now)

    def duration(self, distribution: int, factor: float = 1.0) -> int:
        return int(whole_ns(factor * draw(self.distributions, distribution)))

    def busy(self, since: int, until: int) -> int:
        return max(0, min(until, self.plan.end_ns) - max(since, self.plan.warmup_ns))

    # -- happenings --------------------------------------------------------------------------------------------------

    def publish(self, row: Array, matches: list[int]) -> None:
        self.steps += 1
        allowed = {wanted: min(int(row["lifetime"]), int(self.subscriptions[wanted]["allowed"])) for wanted in matches}
        now = int(row["time"])
        is_counted = now >= self.plan.warmup_ns
        publisher, sequence = int(row["publisher"]), int(row["sequence"])
        event = _Event(now, publisher, sequence, float(row["size_kb"]), allowed, is_counted, int(row["tree"]))
        if event.is_counted:
            self.published += 1
            self.subscriptions["matched"][matches] += 1
        link = int(self.plan.publishers["link"][event.publisher])
        self.enqueue(event, link, [wanted for wanted in matches if self.leads_to(event, link, wanted)], now)

    def transmitted(self, link: int, now: int) -> None:
        copy, self.sending[link] = self.sending[link], None
        assert copy is not None
        queue = self.queues[link]
        if self.plan.is_dropping:
            self.prune(link, now)
        if queue:
            self.send(link, queue.pop(self.choice(link, now)), now)
        self.cross(copy, now)

    def served(self, broker: int, now: int) -> None:
        copy, self.serving[broker] = self.serving[broker], None
        assert copy is not None
        if self.doors[broker]:
            self.serve(broker, self.doors[broker].pop(0), now)
        delay = self.duration(self.brokers[broker]["processing"]) if self.brokers[broker]["has_processing"] else 0
        if delay > 0:
            self.note(now + delay, PROCESSED, copy)
        else:
            self.process(copy, now)

    def arrive(self, copy: _Copy, now: int) -> None:
        broker = int(self.links[copy.link]["target"])
        if self.serving[broker] is None:
            self.serve(broker, copy, now)
        else:
            self.doors[broker].append(copy)

    def process(self, copy: _Copy, now: int) -> None:
        event, broker = copy.event, int(self.links[copy.link]["target"])
        wanting = list(event.allowed) if self.plan.routes.is_multi else copy.wanted
        for wanted in wanting:
            if self.subscriptions[wanted]["home"] == broker and wanted not in event.delivered:
                event.delivered.add(wanted)
                if event.is_counted:
                    in_time = now - event.published < event.allowed[wanted]
                    self.subscriptions["on_time" if in_time else "late"][wanted] += 1
        for link in self.onward(event, broker):
            behind = [wanted for wanted in wanting if self.leads_to(event, link, wanted)]
            if behind:
                self.enqueue(event, link, behind, now)
        self.end(copy)

    # -- steps -------------------------------------------------------------------------------------------------------

    def enqueue(self, event: _Event, link: int, wanted: list[int], now: int) -> None:
        copy = _Copy(event, link, wanted)
        event.copies += 1
        self.alive.add(copy)
        self.give_figures(copy)
        is_free, is_access = bool(self.links[link]["is_free"]), self.links[link]["source"] < 0
        code = int(self.links[link]["strategy"])
        if (self.plan.is_dropping or code == TRIAGE) and wanted and not (is_free and is_access):
            itself = np.arange(len(wanted), dtype=np.int64)
            allowed_s, _, fixed_s, mean, sd = copy.figures
            bold = float(self.links[link]["quantile"])
            if self.sending[link] is None:
                bold = max(bold, HOPELESS_QUANTILE)
            copy.delete_at = int(
                deletion_ns(
                    code, event.published, event.size_kb, 0, len(wanted), itself, allowed_s, fixed_s, mean, sd, bold
                )
            )
        if not is_free and self.sending[link] is not None:
            self.queues[link].append(copy)
        elif self.plan.is_dropping and copy.delete_at <= now:
            self.drop(copy)
        elif not is_free:
            self.send(link, copy, now)
        else:
            self.cross(copy, now, at_once=False)

    def send(self, link: int, copy: _Copy, now: int) -> None:
        self.sending[link] = copy
        sent = now + self.duration(self.links[link]["slowness"], copy.event.size_kb)
        self.links[link]["busy_ns"] += self.busy(now, sent)
        self.note(sent, TRANSMITTED, link)

    def cross(self, copy: _Copy, now: int, *, at_once: bool = True) -> None:
        """From the end of a transmission to the next broker, unless it is lost."""
        link = self.links[copy.link]
        if link["loss_chance"] > 0 and uniform(self.distributions, link["loss"]) < link["loss_chance"]:
            self.end(copy)
            return
        at, kind = now + self.duration(link["propagation"]), ARRIVED
        broker = self.brokers[link["target"]]
        self.traffic += copy.event.is_counted
        if not broker["has_service"]:
            kind = PROCESSED
            if broker["has_processing"]:
                at += self.duration(broker["processing"])
        if at > now or not at_once:
            self.note(at, kind, copy)
        elif kind == ARRIVED:
            self.arrive(copy, now)
        else:
            self.process(copy, now)

    def serve(self, broker: int, copy: _Copy, now: int) -> None:
        self.serving[broker] = copy
        served = now + self.duration(self.brokers[broker]["service"], float(self.brokers[broker]["table"]))
        self.brokers[broker]["busy_ns"] += self.busy(now, served)
        self.note(served, SERVED, broker)

    def prune(self, link: int, now: int) -> None:
        queue = self.queues[link]
        if self.links[link]["strategy"] == FIFO:
            while queue and queue[0].delete_at <= now:
                self.drop(queue.pop(0))
            return
        for copy in [copy for copy in queue if copy.delete_at <= now]:
            queue.remove(copy)
            self.drop(copy)

    def choice(self, link: int, now: int) -> int:
        """The place in the queue of what is sent next."""
        queue, chosen = self.queues[link], 0
        if self.links[link]["strategy"] != FIFO and len(queue) > 1:
            wanted = self.plan.network.policies.scheduling
            policy = strategy(wanted.name, r=wanted.r)
            turn_s = float(self.links[link]["postponed_s"]) / policy.turns
            chosen = Decision(policy, turn_s=turn_s, processing_s=1.0).choice(queue, now)
        return chosen if self.plan.network.policies.ordering is None else first_in_sequence(queue, chosen)

    def drop(self, copy: _Copy) -> None:
        copy.event.dropped.update(copy.wanted)
        self.end(copy)

    def end(self, copy: _Copy) -> None:
        self.alive.discard(copy)
        copy.event.copies -= 1
        if copy.event.copies == 0:
            self.settle(copy.event, set())

    def settle(self, event: _Event, underway: set[int]) -> None:
        for wanted in event.allowed if event.is_counted else ():
            if wanted not in event.delivered:
                fate = "in_flight" if wanted in underway else "discarded" if wanted in event.dropped else "lost"
                self.subscriptions[fate][wanted] += 1

    def finish(self) -> Result:
        for event in {copy.event: None for copy in self.alive}:
            self.settle(event, {wanted for copy in self.alive if copy.event is event for wanted in copy.wanted})
        self.batches.count(self.plan.drained_ns, self.subscriptions)
        control = {PUBLISHED: self.published, TRAFFIC: self.traffic, STEPS: self.steps}
        world = counted(control, subscriptions=self.subscriptions, links=self.links, brokers=self.brokers)
        return make_result(self.plan, world, self.batches, faults=None, relocation=None)

    # -- routes ------------------------------------------------------------------------------------------------------

    def onward(self, event: _Event, broker: int) -> list[int]:
        routes = self.plan.routes
        if routes.is_multi:
            return [int(link) for link in routes.out_links[routes.out_offsets[broker] : routes.out_offsets[broker + 1]]]
        tree = event.tree
        slots = range(routes.first_child[tree, broker], routes.first_child[tree, broker + 1])
        return [int(routes.child_link[tree, slot]) for slot in slots]

    def leads_to(self, event: _Event, link: int, wanted: int) -> bool:
        routes, home = self.plan.routes, int(self.subscriptions[wanted]["home"])
        if routes.is_multi:
            return bool(routes.reaches[link, home])
        tree, target = event.tree, int(self.links[link]["target"])
        return bool(routes.position[tree, target] <= routes.position[tree, home] < routes.subtree_end[tree, target])

    def give_figures(self, copy: _Copy) -> None:
        """Deadlines, prices and what is left of the paths, as the strategies want them."""
        event, routes, link = copy.event, self.plan.routes, copy.link
        homes = self.subscriptions["home"][copy.wanted]
        allowed = np.array([event.allowed[wanted] for wanted in copy.wanted], np.float64)
        allowed_s = np.where(allowed < NEVER_NS, allowed / NANOSECONDS, math.inf)
        price = self.subscriptions["price"][copy.wanted]
        fixed_s, mean, variance = (np.zeros(len(copy.wanted)) for _ in range(3))
        if self.links[link]["strategy"] in (FIFO, RL):
            pass
        elif routes.is_multi:
            fixed_s, mean, variance = (table[link, homes] for table in (routes.fixed_s, routes.mean, routes.variance))
        else:
            tree, source = event.tree, int(self.links[link]["source"])
            tables = (routes.fixed_s, routes.mean, routes.variance)
            if source >= 0:
                before = [table[tree, source] for table in tables]
            else:
                row = len(routes.position) + event.publisher
                before = [0.0, -routes.mean[row, 0], -routes.variance[row, 0]]
            fixed_s, mean, variance = (
                table[tree, homes] - passed for table, passed in zip(tables, before, strict=True)
            )
        copy.figures = (allowed_s, price, fixed_s, mean, np.sqrt(np.maximum(0.0, variance)))
