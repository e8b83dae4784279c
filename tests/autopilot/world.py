"""A network in virtual time for an autopilot: subscriptions whose on-time shares follow from where publishers are."""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from tidings.autopilot import (
    Account,
    Apply,
    AskPlan,
    Autopilot,
    AutopilotSettings,
    Effect,
    Memory,
    Note,
    Observation,
    Proposal,
    Record,
    Revert,
    Step,
)
from tidings.autopilot._audit import Change, Forecast
from tidings.planning import MovePublisher, UseStrategy

POLL_S = 2.0
ORDER_S = 1.0
PLAN_S = 6.0

Shares = Callable[["World"], list[float]]
Planner = Callable[["World", AskPlan], Proposal]


def move(broker: str, publisher: str = "p") -> MovePublisher:
    return MovePublisher(publisher=publisher, broker=broker)


def proposal(*changes: Change, gain: float = 1.0) -> Proposal:
    """A plan of these changes with the predicted gain of all together."""
    each = gain / max(len(changes), 1)
    steps = [
        Step(change=change, predicted=Forecast(now=gain, then=gain - each * number, gain=each * number))
        for number, change in enumerate(changes, 1)
    ]
    return Proposal(steps=tuple(steps), words="a plan")


@dataclass
class World:
    """Everything happens at multiples of a second; while `holds`, events are
    matched and wait; `refuses` are clients and strategies that do not follow orders."""

    shares: Shares
    planner: Planner
    settings: AutopilotSettings = field(default_factory=lambda: AutopilotSettings(may_apply=True))
    subscriptions: int = 4
    rate_per_s: float = 5.0
    seed: int = 0
    homes: dict[str, str] = field(default_factory=lambda: {"p": "a"})
    strategy: str = "fifo"
    now_s: float = 1_000.0
    holds: Callable[["World"], bool] = lambda _: False
    refuses: set[str] = field(default_factory=set)
    down: frozenset[str] = frozenset()
    records: list[Record] = field(default_factory=list)
    orders: list[tuple[float, Change]] = field(default_factory=list)
    plans: int = 0

    def __post_init__(self) -> None:
        self.dice = np.random.default_rng(self.seed)
        self.counts = np.zeros((self.subscriptions, 3), np.int64)
        self.start()

    def start(self) -> None:
        """A new autopilot, with the memory that the log gives it."""
        lines = [msgspec.json.encode(record) for record in self.records]
        self.autopilot = Autopilot(self.settings, Memory(msgspec.json.decode(line, type=Record) for line in lines))
        self.due: list[tuple[float, Effect]] = []

    def run(self, span_s: float) -> "World":
        until_s = self.now_s + span_s
        while self.now_s < until_s:
            self.now_s += 1.0
            self._deliver()
            for at_s, effect in [each for each in self.due if each[0] <= self.now_s]:
                self.due.remove((at_s, effect))
                self._carry_out(self._done(effect))
            if self.now_s % POLL_S == 0.0:
                self._carry_out(self.autopilot.observe(self.seen()))
        return self

    def run_until(self, kind: str, longest_s: float = 3_600.0) -> Record:
        """Until a record of this kind is written."""
        before, until_s = len(self.records), self.now_s + longest_s
        while self.now_s < until_s:
            self.run(1.0)
            for record in self.records[before:]:
                if record.kind == kind:
                    return record
        raise AssertionError(f"no record {kind!r} in {longest_s:g} s: {self.kinds}")

    def stop(self) -> None:
        self._carry_out(self.autopilot.stop(self.now_s, "stopped"))

    def seen(self) -> Observation:
        accounts = {
            f"s/{n}": Account(on_time=good, settled=many, matched=matched, max_delay_s=1.0)
            for n, (good, many, matched) in enumerate(self.counts.tolist())
        }
        return Observation(
            at_s=self.now_s, accounts=accounts, homes=dict(self.homes), strategy=self.strategy, down=self.down
        )

    @property
    def kinds(self) -> list[str]:
        return [record.kind for record in self.records]

    def _deliver(self) -> None:
        many = self.dice.poisson(self.rate_per_s, self.subscriptions)
        good = self.dice.binomial(many, np.clip(self.shares(self), 0.0, 1.0))
        settled = 0 if self.holds(self) else 1
        self.counts += np.stack((settled * good, settled * many, many), axis=1)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Note(record=record):
                    self.records.append(record)
                case AskPlan():
                    self.due.append((self.now_s + PLAN_S, effect))
                case Apply() | Revert():
                    self.due.append((self.now_s + ORDER_S, effect))

    def _done(self, effect: Effect) -> list[Effect]:
        match effect:
            case AskPlan():
                self.plans += 1
                return self.autopilot.planned(self.now_s, self.planner(self, effect))
            case Apply(change=change):
                return self.autopilot.applied(self.now_s, done=self._make(change), why="it refused")
            case Revert(inverse=inverse):
                return self.autopilot.reverted(self.now_s, done=self._make(inverse), why="it refused")
            case Note():
                raise AssertionError("notes are not answered")

    def _make(self, change: Change) -> bool:
        self.orders.append((self.now_s, change))
        name = change.publisher if isinstance(change, MovePublisher) else change.strategy
        if name in self.refuses:
            return False
        if isinstance(change, UseStrategy):
            self.strategy = change.strategy
        else:
            self.homes[change.publisher] = change.broker
        return True
