"""The same model once more, in plain Python: what the compiled loop of a network that fails is compared with.

It shares with the loop what is not in question: the plan, the publications with their matches and the random streams.
Everything else is written again, for reading: tables are dictionaries of brokers and homes, maps are dictionaries of
links, ways are found by walking, and an event knows by sets where it has been.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.simulation.plain_twin import Decision, counted, first_in_sequence

from tidings.compiled import lend
from tidings.faults import bypass_targets
from tidings.model.scenario import Network
from tidings.scheduling import strategy
from tidings.scheduling._kernels import HOPELESS_QUANTILE
from tidings.scheduling._strategies import FIFO, RL, TRIAGE
from tidings.simulation import _layout as at
from tidings.simulation._draws import draw, uniform, whole_ns
from tidings.simulation._layout import NANOSECONDS, NEVER_NS, Array
from tidings.simulation._links import deletion_ns
from tidings.simulation._options import Options
from tidings.simulation._plan import SimulationPlan, plan
from tidings.simulation._publications import chunks
from tidings.simulation._result import Batches, FaultFigures, Result, make_result

__all__ = ["simulate_failing_plainly"]

Happening = Callable[[Any, int], None]


@dataclass(eq=False)
class _Event:
    published: int
    lifetime: int
    size_kb: float
    tree: int
    publisher: int
    sequence: int
    wanted: dict[int, list[int]]
    is_counted: bool
    accepted: set[int] = field(default_factory=set)
    sent: set[int] = field(default_factory=set)
    tried: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    discarded: set[int] = field(default_factory=set)


@dataclass(eq=False)
class _Copy:
    event: _Event
    node: int
    link: int
    is_stored: bool
    source_epoch: int
    hops_left: int
    expires: int
    figures: tuple[Array, ...] = ()
    delete_at: int = NEVER_NS
    place: str = "flying"
    sent: int = -1
    link_epoch: int = 0
    target_epoch: int = 0


def simulate_failing_plainly(network: Network, options: Options | None = None) -> Result:
    """The result that `simulate` must give, apart from the time it took."""
    chosen = Options() if options is None else options
    run = _Run(plan(network, chosen))
    base = run.plan
    for chunk in chunks(base, events=chosen.chunk_events, sample=1.0, is_traced=False):
        for row in chunk.events:
            run.advance(int(row["time"]), is_draining=False)
            run.publish(row, chunk.matches[row["first"] : row["first"] + row["count"]].tolist())
        run.advance(chunk.horizon_ns, is_draining=False)
        run.batches.count(chunk.horizon_ns, run.subscriptions)
    run.advance(base.drained_ns, is_draining=True)
    return run.finish()


class _Run:
    def __init__(self, planned: SimulationPlan) -> None:
        self.plan, self.batches = planned, Batches(planned)
        self.faults, wanted = planned.network.policies.faults, planned.network.policies.scheduling
        self.strategy = strategy(wanted.name, r=wanted.r)
        self.distributions, self.subscriptions = lend(planned.distributions.copy()), planned.subscriptions.copy()
        self.channels, self.stations = planned.links.copy(), planned.brokers.copy()
        components = planned.components.records
        brokers, links = range(len(self.stations)), range(len(planned.components.answering))
        self.links = links
        self.source = planned.links["source"].tolist()
        self.target = planned.links["target"].tolist()
        self.back = planned.links["reverse"].tolist()
        self.part = planned.links["component"].tolist()
        self.up = [bool(each) for each in components["up"]]
        self.epoch = [0] * len(self.up)
        self.changed = [0] * len(self.up)
        self.leaving = [[link for link in links if self.source[link] == broker] for broker in brokers]
        self.table = {row: int(record["until"]) for row, record in enumerate(planned.rows)}
        self.map = [
            {link: (bool(planned.components.answering[link]), 1) if self.up[b] else (False, 0) for link in links}
            for b in brokers
        ]
        self.clock = 1
        self.queue: list[list[_Copy]] = [[] for _ in self.source]
        self.sending: list[tuple[_Copy, int] | None] = [None for _ in self.source]
        self.blocked: list[list[_Copy]] = [[] for _ in self.source]
        self.since = [0 for _ in self.source]
        self.door: list[list[_Copy]] = [[] for _ in brokers]
        self.serving: list[tuple[_Copy, int] | None] = [None for _ in brokers]
        self.held: list[list[_Copy]] = [[] for _ in brokers]
        self.is_waiting = [False for _ in brokers]
        self.messages = dict.fromkeys(at.MESSAGES, 0)
        self.duplicates = self.stored = self.stored_peak = 0
        self.order = self.steps = self.traffic = self.published = 0
        self.alive: dict[_Copy, None] = {}
        self.events: list[_Event] = []
        self.calendar: list[tuple[int, int, Happening, Any]] = []
        kinds: dict[int, Happening] = {at.TRANSITION: self.transition, at.REFRESH: self.refresh}
        for entry in planned.heap:
            self.note(int(entry["time"]), kinds[int(entry["what"]) & at.KINDS], int(entry["what"]) >> at.KIND_BITS)

    # -- time --------------------------------------------------------------------------------------------------------

    def note(self, time: int, what: Happening, about: Any) -> None:
        heapq.heappush(self.calendar, (time, self.order, what, about))
        self.order += 1

    def advance(self, until: int, *, is_draining: bool) -> None:
        """Let everything happen that happens before a time."""
        while self.calendar and self.calendar[0][0] < until and (self.alive or not is_draining):
            now, _, what, about = heapq.heappop(self.calendar)
            self.steps += 1
            what(about, now)

    def duration(self, distribution: int, factor: float = 1.0) -> int:
        return int(whole_ns(factor * draw(self.distributions, distribution)))

    def busy(self, since: int, until: int) -> int:
        return max(0, min(until, self.plan.end_ns) - max(since, self.plan.warmup_ns))

    def is_usable(self, link: int) -> bool:
        return all(self.up[each] for each in (self.source[link], self.part[link], self.target[link]))

    # -- copies ------------------------------------------------------------------------------------------------------

    def copy(self, event: _Event, node: int, link: int, *, is_stored: bool) -> _Copy:
        epoch = self.epoch[self.source[link]] if self.source[link] >= 0 else 0
        made = _Copy(event, node, link, is_stored, epoch, len(self.stations), self.expiry(event, node))
        self.alive[made] = None
        if is_stored:
            self.stored += 1
            self.stored_peak = max(self.stored_peak, self.stored)
        return made

    def end(self, copy: _Copy) -> None:
        del self.alive[copy]
        copy.place = "ended"
        self.stored -= copy.is_stored

    def behind(self, event: _Event, broker: int) -> list[int]:
        """The homes that want an event at a broker or below it in the tree, in the order of the tree."""
        parent = self.plan.parent[event.tree]
        return [home for home in event.wanted if broker in _upwards(parent, home)]

    def allowed(self, event: _Event, broker: int) -> list[int]:
        """How long each pair at a broker or below it may take."""
        numbers = [number for home in self.behind(event, broker) for number in event.wanted[home]]
        return [min(event.lifetime, int(self.subscriptions[number]["allowed"])) for number in numbers]

    def expiry(self, event: _Event, broker: int) -> int:
        """When an event is too late for everybody at a broker or below it, if such events are dropped."""
        longest = max(self.allowed(event, broker), default=NEVER_NS)
        return event.published + longest if self.plan.is_dropping and longest < NEVER_NS else NEVER_NS

    def assess(self, copy: _Copy) -> None:
        """What the strategy of its link wants to know of a copy, and when the link gives it up."""
        link, event = self.channels[copy.link], copy.event
        code, is_access = int(link["strategy"]), link["source"] < 0
        homes = [home for home in self.behind(event, copy.node) for _ in event.wanted[home]]
        if not homes or (link["is_free"] and is_access) or not (self.plan.is_dropping or code != FIFO):
            return
        if code in (FIFO, RL):
            copy.delete_at = copy.expires
        allowed = np.array(self.allowed(event, copy.node), np.float64)
        numbers = [number for home in self.behind(event, copy.node) for number in event.wanted[home]]
        figures = [np.where(allowed < NEVER_NS, allowed / NANOSECONDS, np.inf), self.subscriptions["price"][numbers]]
        routes, above = self.plan.routes, int(self.plan.parent[event.tree, copy.node])
        for table in (routes.fixed_s, routes.mean, routes.variance):
            if above >= 0 and not is_access:
                before = table[event.tree, above]
            else:
                before = 0.0 if table is routes.fixed_s else -table[len(routes.position) + event.publisher, 0]
            figures.append(table[event.tree, homes] - before)
        figures[-1] = np.sqrt(np.maximum(0.0, figures[-1]))
        copy.figures = tuple(figures)
        if code not in (FIFO, RL) and (self.plan.is_dropping or code == TRIAGE):
            bold = float(link["quantile"])
            if self.sending[copy.link] is None:
                bold = max(bold, HOPELESS_QUANTILE)
            itself, (allowed_s, _, fixed_s, mean, sd) = np.arange(len(homes), dtype=np.int64), copy.figures
            copy.delete_at = int(
                deletion_ns(
                    code, event.published, event.size_kb, 0, len(homes), itself, allowed_s, fixed_s, mean, sd, bold
                )
            )

    def discard(self, copy: _Copy) -> None:
        copy.event.discarded.update(self.behind(copy.event, copy.node))
        self.end(copy)

    def next_try(self, since: int, now: int) -> int:
        retry = int(self.plan.settings[at.RETRY_NS])
        return since + max(1, -((since - now) // retry)) * retry

    def count_tries(self, link: int, now: int) -> None:
        self.messages["retransmission"] += (now - self.since[link]) // int(self.plan.settings[at.RETRY_NS])

    def block(self, copy: _Copy, now: int) -> None:
        link = copy.link
        if self.faults.queues == "volatile" and copy.source_epoch != self.epoch[self.source[link]]:
            self.end(copy)
            return
        if now >= copy.expires:
            self.discard(copy)
            return
        copy.place = "blocked"
        if not self.blocked[link]:
            self.since[link] = copy.sent if copy.sent >= 0 else now
            if self.is_usable(link):
                self.note(self.next_try(self.since[link], now), self.retry, link)
        self.blocked[link].append(copy)
        if copy.expires < NEVER_NS:
            self.note(copy.expires, self.expire, copy)

    def fail(self, copy: _Copy, now: int) -> None:
        self.block(copy, now) if copy.is_stored else self.end(copy)

    def enqueue(self, copy: _Copy, now: int) -> None:
        if copy.is_stored and self.blocked[copy.link]:
            self.block(copy, now)
            return
        self.assess(copy)
        if self.sending[copy.link] is not None:
            copy.place = "queued"
            self.queue[copy.link].append(copy)
        elif self.plan.is_dropping and copy.delete_at <= now:
            self.discard(copy)
        else:
            self.depart(copy, now)

    def depart(self, copy: _Copy, now: int) -> None:
        link = copy.link
        if link < len(self.links):
            self.messages["data" if copy.sent < 0 else "retransmission"] += 1
        copy.sent, copy.link_epoch = now, self.epoch[self.part[link]]
        if self.channels[link]["is_free"]:
            self.cross(copy, now)
            return
        until = now + self.duration(self.channels[link]["slowness"], copy.event.size_kb)
        self.sending[link] = (copy, until)
        copy.place = "queued"
        self.channels["busy_ns"][link] += self.busy(now, until)
        self.note(until, self.transmitted, link)

    def cross(self, copy: _Copy, now: int) -> None:
        link, part = copy.link, self.part[copy.link]
        loss = float(self.channels[link]["loss_chance"])
        is_open = self.up[part] and self.epoch[part] == copy.link_epoch
        if not is_open or (loss > 0.0 and uniform(self.distributions, self.channels[link]["loss"]) < loss):
            self.fail(copy, now)
        else:
            copy.place = "flying"
            self.note(now + self.duration(self.channels[link]["propagation"]), self.arrive, copy)

    def acknowledge(self, copy: _Copy, now: int) -> None:
        back = self.back[copy.link]
        self.messages["ack"] += 1
        copy.place = "awaiting"
        delay = int(self.channels[back]["control_ns"])
        if not self.up[self.part[back]]:
            self.block(copy, now)
        elif delay == 0:
            self.acked(copy, now)
        else:
            self.note(now + delay, self.acked, copy)

    # -- what happens to copies --------------------------------------------------------------------------------------

    def publish(self, row: Array, matches: list[int]) -> None:
        self.steps += 1
        now, publisher = int(row["time"]), int(row["publisher"])
        base = self.plan
        tree = int(row["tree"])
        is_counted = now >= base.warmup_ns
        event = _Event(
            now, int(row["lifetime"]), float(row["size_kb"]), tree, publisher, int(row["sequence"]), {}, is_counted
        )
        for number in matches:
            self.subscriptions["matched"][number] += is_counted
            home = int(self.subscriptions[number]["home"])
            if base.routes.position[tree, home] < 0:
                self.subscriptions["lost"][number] += is_counted
                continue
            event.wanted.setdefault(home, []).append(number)
        self.published += is_counted
        self.events.append(event)
        link = int(base.publishers["link"][publisher])
        self.enqueue(self.copy(event, self.target[link], link, is_stored=False), now)

    def transmitted(self, link: int, now: int) -> None:
        sent = self.sending[link]
        if sent is None or sent[1] != now:
            return
        self.sending[link] = None
        self.send_next(link, now)
        self.cross(sent[0], now)

    def send_next(self, link: int, now: int) -> None:
        queue, is_fifo = self.queue[link], self.channels[link]["strategy"] == FIFO
        for copy in list(queue) if self.plan.is_dropping else ():
            if copy.delete_at <= now:
                queue.remove(copy)
                self.discard(copy)
            elif is_fifo:
                break
        if queue:
            chosen = 0
            if not is_fifo and len(queue) > 1:
                turn_s = float(self.channels[link]["postponed_s"]) / self.strategy.turns
                chosen = Decision(self.strategy, turn_s=turn_s, processing_s=1.0).choice(queue, now)
            if self.plan.network.policies.ordering is not None:
                chosen = first_in_sequence(queue, chosen)
            self.depart(queue.pop(chosen), now)

    def arrive(self, copy: _Copy, now: int) -> None:
        link, broker = copy.link, self.target[copy.link]
        if self.epoch[self.part[link]] != copy.link_epoch or not self.up[broker]:
            self.fail(copy, now)
            return
        self.traffic += copy.event.is_counted
        if copy.is_stored and self.faults.ack == "early":
            inside = self.copy(copy.event, copy.node, link, is_stored=False)
            inside.sent = copy.sent
            self.acknowledge(copy, now)
            copy = inside
        copy.target_epoch = self.epoch[broker]
        if not self.stations[broker]["has_service"]:
            self.process(broker, copy, now)
        elif self.serving[broker] is None:
            self.serve(broker, copy, now)
        else:
            self.door[broker].append(copy)

    def serve(self, broker: int, copy: _Copy, now: int) -> None:
        station = self.stations[broker]
        until = now + self.duration(station["service"], float(station["table"]))
        self.serving[broker] = (copy, until)
        self.stations["busy_ns"][broker] += self.busy(now, until)
        self.note(until, self.served, broker)

    def served(self, broker: int, now: int) -> None:
        served = self.serving[broker]
        if served is None or served[1] != now:
            return
        self.serving[broker] = None
        if self.door[broker]:
            self.serve(broker, self.door[broker].pop(0), now)
        self.process(broker, served[0], now)

    def process(self, broker: int, copy: _Copy, now: int) -> None:
        station = self.stations[broker]
        delay = self.duration(station["processing"]) if station["has_processing"] else 0
        self.note(now + delay, self.accept, copy) if delay > 0 else self.accept(copy, now)

    def accept(self, copy: _Copy, now: int) -> None:
        broker, event = self.target[copy.link], copy.event
        if copy.target_epoch != self.epoch[broker]:
            self.fail(copy, now)
            return
        if broker != copy.node:
            ways = self.ways(broker)
            copy.hops_left -= 1
            if copy.node not in ways or copy.hops_left <= 0:
                self.end(copy)
                return
            copy.link, copy.source_epoch, copy.sent = ways[copy.node][0], self.epoch[broker], -1
            self.enqueue(copy, now)
            return
        if broker in event.accepted:
            self.duplicates += 1
        else:
            event.accepted.add(broker)
            if self.dispatch(event, broker, now):
                self.hold(event, broker, copy.link, now)
        self.acknowledge(copy, now) if copy.is_stored else self.end(copy)

    def acked(self, copy: _Copy, now: int) -> None:
        is_heard = self.up[self.source[copy.link]] and self.up[self.part[self.back[copy.link]]]
        self.end(copy) if is_heard else self.block(copy, now)

    def retry(self, link: int, now: int) -> None:
        waiting = self.blocked[link]
        if not waiting or not self.is_usable(link):
            return
        self.count_tries(link, now)
        if now > self.since[link]:
            self.messages["retransmission"] -= 1
        self.blocked[link] = []
        for copy in waiting:
            self.discard(copy) if now >= copy.expires else self.enqueue(copy, now)

    def expire(self, copy: _Copy, now: int) -> None:
        if copy.place == "blocked":
            self.blocked[copy.link].remove(copy)
            if not self.blocked[copy.link] and self.up[self.source[copy.link]]:
                self.count_tries(copy.link, now)
            self.discard(copy)
        elif copy.place == "held":
            self.held[copy.node].remove(copy)
            self.discard(copy)

    # -- tables ------------------------------------------------------------------------------------------------------

    def row(self, event: _Event, home: int, broker: int) -> int:
        """The row of the table by which a broker knows a home, found by walking from the home."""
        rows, row = self.plan.rows, int(self.plan.brokers["root"][home])
        for above in _upwards(self.plan.parent[event.tree], home)[1:]:
            if rows[row]["broker"] == broker:
                break
            row = next(each for each in self.following(row) if rows[each]["broker"] == above)
        return row

    def following(self, row: int) -> list[int]:
        record = self.plan.rows[row]
        numbers: list[int] = self.plan.lists[record["first_child"] : record["last_child"]].tolist()
        return numbers

    def dispatch(self, event: _Event, broker: int, now: int) -> bool:
        """Deliver and send on; whether somebody is missing."""
        parent = self.plan.parent[event.tree]
        children = set()
        for home in self.behind(event, broker):
            is_known = self.table[self.row(event, home, broker)] > now
            if home == broker:
                if home not in event.delivered and is_known:
                    self.deliver(event, home, now)
                continue
            path = _upwards(parent, home)
            child = path[path.index(broker) - 1]
            if child not in event.sent and is_known:
                self.send_on(event, broker, child, now)
            children.add(child)
        is_served = broker not in event.wanted or broker in event.delivered
        return not (is_served and children <= event.sent)

    def deliver(self, event: _Event, home: int, now: int) -> None:
        event.delivered.add(home)
        for number in event.wanted[home]:
            is_on_time = now - event.published < min(event.lifetime, int(self.subscriptions[number]["allowed"]))
            self.subscriptions["on_time" if is_on_time else "late"][number] += event.is_counted

    def send_on(self, event: _Event, broker: int, child: int, now: int) -> None:
        event.sent.add(child)
        if now >= self.expiry(event, child):
            event.discarded.update(self.behind(event, child))
            return
        link = next(each for each in self.leaving[broker] if self.target[each] == child)
        if not self.faults.is_bypassing or self.map[broker][link][0]:
            self.enqueue(self.copy(event, child, link, is_stored=self.faults.is_buffering), now)
            return
        if self.faults.is_buffering:
            self.block(self.copy(event, child, link, is_stored=True), now)
        self.detour(event, broker, child, now)

    def hold(self, event: _Event, broker: int, link: int, now: int) -> None:
        is_holding = self.faults.is_buffering and self.faults.ack == "late" and self.epoch[broker] > 0
        expires = self.expiry(event, broker)
        if is_holding and now < min(self.changed[broker] + int(self.plan.settings[at.TIMEOUT_NS]), expires):
            copy = self.copy(event, broker, link, is_stored=True)
            copy.place = "held"
            self.held[broker].append(copy)
            if expires < NEVER_NS:
                self.note(expires, self.expire, copy)

    def offer(self, copy: _Copy, now: int) -> None:
        if copy.place == "held" and not self.dispatch(copy.event, copy.node, now):
            self.held[copy.node].remove(copy)
            self.end(copy)

    def refresh(self, home: int, now: int) -> None:
        self.note(now + int(self.plan.settings[at.REFRESH_NS]), self.refresh, home)
        if self.up[home]:
            self.refresh_row(int(self.plan.brokers["root"][home]), now)

    def refresh_row(self, row: int, now: int) -> None:
        broker = int(self.plan.rows[row]["broker"])
        self.table[row] = now + int(self.plan.settings[at.TIMEOUT_NS])
        for copy in self.held[broker]:
            if any(self.row(copy.event, home, broker) == row for home in self.behind(copy.event, broker)):
                self.note(now, self.offer, copy)
        for following in self.following(row):
            link = int(self.plan.rows[following]["link"])
            if self.faults.is_bypassing and not self.map[broker][link][0]:
                self.refresh_around(following, broker, now)
                continue
            self.messages["refresh"] += 1
            if self.up[self.part[link]]:
                self.note(now + int(self.channels[link]["control_ns"]), self.row_arrived, (following, False))

    def refresh_around(self, row: int, broker: int, now: int) -> None:
        ways, target = self.ways(broker), int(self.plan.rows[row]["broker"])
        if target not in ways:
            for following in reversed(self.following(row)):
                self.refresh_around(following, broker, now)
            return
        path = ways[target]
        self.messages["refresh"] += len(path)
        if all(self.up[self.part[link]] and self.up[self.target[link]] for link in path):
            delay = sum(int(self.channels[link]["control_ns"]) for link in path)
            self.note(now + delay, self.row_arrived, (row, True))

    def row_arrived(self, message: tuple[int, bool], now: int) -> None:
        row, is_around = message
        record = self.plan.rows[row]
        if self.up[int(record["broker"])] and (is_around or self.up[self.part[int(record["link"])]]):
            self.refresh_row(row, now)

    # -- maps --------------------------------------------------------------------------------------------------------

    def ways(self, broker: int) -> dict[int, list[int]]:
        """The links of the way of fewest hops to everybody whom a broker's map leads to."""
        known = self.map[broker]
        ways: dict[int, list[int]] = {}
        waiting = deque([broker])
        while waiting:
            here = waiting.popleft()
            for link in self.leaving[here]:
                there, back = self.target[link], self.back[link]
                if there != broker and there not in ways and back >= 0 and known[link][0] and known[back][0]:
                    ways[there] = [*ways.get(here, []), link]
                    waiting.append(there)
        return ways

    def detour(self, event: _Event, broker: int, child: int, now: int) -> None:
        ways = self.ways(broker)
        known = [h for h in self.behind(event, child) if self.table[self.row(event, h, broker)] > now]
        for home in known:
            for target in bypass_targets(self.plan.parent[event.tree].tolist(), child, [home], list(ways)):
                if target not in event.tried:
                    event.tried.add(target)
                    self.enqueue(self.copy(event, target, ways[target][0], is_stored=False), now)

    def detoured(self, copy: _Copy, now: int) -> None:
        broker = self.source[copy.link]
        if copy.place == "blocked" and self.up[broker] and not self.map[broker][copy.link][0]:
            self.detour(copy.event, broker, copy.node, now)

    def rerouted(self, broker: int, now: int) -> None:
        self.is_waiting[broker] = False
        for link in self.leaving[broker]:
            for copy in self.blocked[link]:
                self.note(now, self.detoured, copy)

    def learn(self, broker: int, link: int, known: tuple[bool, int], teacher: int, now: int) -> None:
        self.map[broker][link] = known
        if self.faults.is_buffering and not self.is_waiting[broker]:
            self.is_waiting[broker] = True
            self.note(now, self.rerouted, broker)
        for other in self.leaving[broker]:
            if self.map[broker][other][0] and self.target[other] != teacher:
                self.tell(other, [link], now)

    def tell(self, link: int, reported: list[int], now: int) -> None:
        self.messages["link-state"] += 1
        if self.up[self.part[link]]:
            self.note(now + int(self.channels[link]["control_ns"]), self.told, (link, reported))

    def told(self, message: tuple[int, list[int]], now: int) -> None:
        link, reported = message
        teacher, broker = self.source[link], self.target[link]
        if self.up[broker] and self.up[self.part[link]]:
            for each in reported:
                known = self.map[teacher][each]
                if self.source[each] != broker and known[1] > self.map[broker][each][1]:
                    self.learn(broker, each, known, teacher, now)

    def detected(self, link: int, now: int) -> None:
        broker, back, other = self.source[link], self.back[link], self.target[link]
        if not self.up[broker] or back < 0:
            return
        answers = self.up[self.part[link]] and self.up[self.part[back]] and self.up[other]
        if self.map[broker][link][0] != answers:
            self.clock += 1
            self.learn(broker, link, (answers, self.clock), other, now)
            if answers:
                self.tell(link, list(self.links), now)

    # -- failures ----------------------------------------------------------------------------------------------------

    def transition(self, component: int, now: int) -> None:
        record = self.plan.components.records[component]
        is_up = not self.up[component]
        self.up[component] = is_up
        self.epoch[component] += 1
        self.changed[component] = now
        distribution = record["up_distribution"] if is_up else record["down_distribution"]
        self.note(now + max(1, self.duration(distribution)), self.transition, component)
        touched = self.plan.lists[record["first_link"] : record["last_link"]].tolist()
        if not is_up and component < len(self.stations):
            self.crash(component, now)
        for link in touched if is_up else ():
            tried = self.next_try(self.since[link], now)
            if self.source[link] == component:
                self.since[link] = tried = now
            if self.blocked[link] and self.is_usable(link):
                self.note(tried, self.retry, link)
        for link in touched if self.faults.is_bypassing else ():
            later = now + int(self.plan.settings[at.DETECTION_NS])
            self.note(later, self.detected, link)
            if component >= len(self.stations) and self.back[link] >= 0:
                self.note(later, self.detected, self.back[link])

    def crash(self, broker: int, now: int) -> None:
        for row, record in enumerate(self.plan.rows):
            if record["broker"] == broker and not self.faults.has_durable_tables:
                self.table[row] = 0
        self.map[broker] = dict.fromkeys(self.links, (False, 0))
        inside = [each[0] for each in (self.serving[broker],) if each is not None] + self.door[broker]
        self.serving[broker], self.door[broker] = None, []
        for copy in inside:
            self.fail(copy, now)
        for link in self.leaving[broker]:
            if self.blocked[link]:
                self.count_tries(link, now)
                self.since[link] = now
            leaving = [each[0] for each in (self.sending[link],) if each is not None] + self.queue[link]
            self.sending[link], self.queue[link] = None, []
            if self.faults.queues == "volatile":
                for copy in self.blocked[link]:
                    self.end(copy)
                self.blocked[link] = []
            for copy in leaving:
                self.fail(copy, now)
        if self.faults.queues == "volatile":
            for copy in self.held[broker]:
                self.end(copy)
            self.held[broker] = []

    def finish(self) -> Result:
        """Count what was not delivered, by what became of it."""
        underway: dict[_Event, set[int]] = {}
        for copy in self.alive:
            underway.setdefault(copy.event, set()).update(self.behind(copy.event, copy.node))
        for event in self.events:
            for home in event.wanted.keys() - event.delivered if event.is_counted else ():
                fate = "discarded" if home in event.discarded else "lost"
                fate = "in_flight" if home in underway.get(event, ()) else fate
                self.subscriptions[fate][event.wanted[home]] += 1
        self.batches.count(self.plan.drained_ns, self.subscriptions)
        faults = FaultFigures(
            scheme=self.faults.scheme,
            messages=self.messages,
            duplicates=self.duplicates,
            storage_peak=self.stored_peak,
        )
        control = {at.PUBLISHED: self.published, at.TRAFFIC: self.traffic, at.STEPS: self.steps}
        world = counted(control, subscriptions=self.subscriptions, links=self.channels, brokers=self.stations)
        return make_result(self.plan, world, self.batches, faults=faults, relocation=None)


def _upwards(parent: Array, broker: int) -> list[int]:
    """A broker, its parent in a tree, and so on to the root."""
    path = [broker]
    while parent[path[-1]] >= 0:
        path.append(int(parent[path[-1]]))
    return path
