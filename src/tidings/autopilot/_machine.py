"""What an autopilot does next: a state machine without I/O. Observations and results come in, with the time; effects go
out. The driver carries effects out in their order: a `Note` is on disk before the `Apply` behind it is given.

```
starting --> healthy --> suspect --> planning --> applying --> verifying --> holding --> healthy
                 ^___________/           |            ^______________|             ^
                                         |         next step         v             |
                                         |______________________ reverting ________|
```

Rules:

- **Hysteresis.** A plan is asked for when too many subscriptions have been below the objective in every observation for
  `suspect_s`. Below means that the whole interval of the share of the last `window_s` is (`_measure`), so one late
  event is nothing.
- **Few changes.** At most `changes_max` in `changes_span_s`, taking changes back not counted; `rest_s` after each that
  helped, `hold_s` after a plan without changes or a change that was taken back, twice as long each time in a row up to
  `hold_most_s`. A slot (the place of a publisher, the strategy) that was changed is left alone for a while, longer if
  the change did not help (`_audit`). A change is made only if its predicted gain, times what such predictions were
  worth, is at least `gain_least`.
- **Judged by the accounts.** The accounts count from `settle_s` after a change. It helped if the shortfall fell by at
  least `gain_least` and by more than noise (SURE standard errors), from `window_s` on; or, by `judge_s`, if it fell by
  `gain_least` and the objective is no longer missed. What has not helped by `judge_s`, or did harm by more than noise
  from twice `window_s` on, is taken back with all changes of the same plan that are not judged, the last first. If a
  step is neither, and the plan has more, they are judged together. Events that wait beyond their deadline count as late
  while they wait, and without events for those that were below the objective there is no proof that it helped.
- **Not clear.** If other brokers answer than when the change was made, and that lasts for `window_s`, the accounts do
  not judge it. It stays, and teaches nothing. A shorter silence only delays the verdict.
- **Stopping.** Nothing is applied or taken back any more. A change that was ordered stays as it is; the log has what
  undoes it, and the next start judges it.
- **Starting again.** The memory has the changes that were ordered and not judged. Those in effect are judged as if they
  had just been made; the others are noted as not in effect.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from tidings.autopilot._audit import Change, Kind, Memory, Record, Slot
from tidings.autopilot._measure import Measure, Observation, measure, with_overdue
from tidings.autopilot._proposal import Proposal, Step
from tidings.errors import ConfigurationError
from tidings.model.units import percent
from tidings.planning import MovePublisher, Objective, UseStrategy

__all__ = ["Apply", "AskPlan", "Autopilot", "AutopilotSettings", "Effect", "Note", "Revert", "State"]

SURE: Final = 2.0
TRIES: Final = 3
"""How often the autopilot tries to take one change back; then it leaves it, and says so."""
RESUME_S: Final = 15.0
"""A client gives up a move after 10 s."""
OBSERVATIONS_MAX: Final = 1_000

State = Literal[
    "starting", "healthy", "suspect", "planning", "applying", "verifying", "reverting", "holding", "stopped"
]
_Event = Literal[
    "seen",
    "short",
    "met",
    "lasting",
    "nothing",
    "chosen",
    "done",
    "refused",
    "helped",
    "open",
    "failed",
    "rested",
]

_NEXT: Final[Mapping[tuple[State, _Event], State]] = {
    ("starting", "seen"): "healthy",
    ("starting", "done"): "verifying",
    ("healthy", "short"): "suspect",
    ("suspect", "met"): "healthy",
    ("suspect", "lasting"): "planning",
    ("planning", "nothing"): "holding",
    ("planning", "chosen"): "applying",
    ("applying", "done"): "verifying",
    ("applying", "refused"): "holding",
    ("applying", "failed"): "reverting",
    ("verifying", "helped"): "holding",
    ("verifying", "open"): "applying",
    ("verifying", "failed"): "reverting",
    ("reverting", "open"): "reverting",
    ("reverting", "done"): "holding",
    ("holding", "rested"): "healthy",
}
"""By state and what happened: the next state. Any state can be stopped."""


class AutopilotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The objective, whether changes are made, and the thresholds (module docstring); times in seconds."""

    slo: float = 0.99
    share: float = 1.0
    may_apply: bool = False
    window_s: float = 10.0
    suspect_s: float = 10.0
    settle_s: float = 5.0
    judge_s: float = 40.0
    rest_s: float = 10.0
    hold_s: float = 60.0
    hold_most_s: float = 1_800.0
    changes_max: int = 4
    changes_span_s: float = 600.0
    gain_least: float = 0.02

    def __post_init__(self) -> None:
        Objective(reliability=self.slo, share=self.share)
        for name in (
            "window_s",
            "suspect_s",
            "settle_s",
            "judge_s",
            "rest_s",
            "hold_s",
            "hold_most_s",
            "changes_span_s",
        ):
            if not 0.0 < getattr(self, name) < 1e7:
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}, but must be above 0")
        if self.judge_s < 2.0 * self.window_s:
            raise ConfigurationError(
                f"judge_s is {self.judge_s:g} and window_s {self.window_s:g}: judge_s must be twice window_s or more"
            )
        if self.changes_max < 1:
            raise ConfigurationError(f"changes_max is {self.changes_max}, but must be 1 or more")

    @property
    def objective(self) -> Objective:
        return Objective(reliability=self.slo, share=self.share)


@dataclass(frozen=True, kw_only=True)
class Note:
    """Write a record to the audit log."""

    record: Record


@dataclass(frozen=True, kw_only=True)
class AskPlan:
    """Ask for a plan from profiles of the time since `since_s`, without these slots; `worths` are by kind of change,
    `measured` are the on-time shares of subscriptions below the objective."""

    since_s: float
    left_alone: frozenset[Slot]
    worths: Mapping[str, float]
    measured: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Apply:
    """Make a change in the live network."""

    change: Change


@dataclass(frozen=True, kw_only=True)
class Revert:
    """Take `change` back by making `inverse`."""

    change: Change
    inverse: Change


Effect = Note | AskPlan | Apply | Revert


class Autopilot:
    """The decisions of one autopilot. Each method returns the effects to carry out, in order."""

    def __init__(self, settings: AutopilotSettings, memory: Memory | None = None) -> None:
        self.settings = settings
        self.memory = Memory() if memory is None else memory
        self.state: State = "starting"
        self._objective = settings.objective
        self._seen: deque[Observation] = deque(maxlen=OBSERVATIONS_MAX)
        self._effects: list[Effect] = []
        self._since_s = (
            0.0  # suspect: the first observation that was short; verifying: when the accounts begin to count
        )
        self._until_s = 0.0  # holding
        self._holds = 0  # in a row
        self._measured: Measure | None = None  # that the present plan is for
        self._steps: list[Step] = []  # of the present plan, still to be made
        self._down: frozenset[str] = frozenset()  # when the change was made
        self._tries = 0
        self._is_asked = False  # whether the order to take the last change back is under way

    # -- what happens ------------------------------------------------------------------------------------------------

    def observe(self, observation: Observation) -> list[Effect]:
        """A look at the network; they come in the order of time, every few seconds."""
        if self._seen and observation.at_s <= self._seen[-1].at_s:
            return []
        observation = with_overdue(observation, tuple(self._seen))
        self._seen.append(observation)
        while len(self._seen) > 1 and self._seen[1].at_s <= observation.at_s - self._span_s:
            self._seen.popleft()
        match self.state:
            case "starting":
                self._resume(observation)
            case "healthy":
                self._watch(observation)
            case "suspect":
                self._suspect(observation)
            case "verifying":
                self._judge(observation)
            case "holding":
                self._hold(observation)
            case "reverting":
                self._take_back()
            case "planning" | "applying" | "stopped":
                pass
        return self._finish()

    def planned(self, at_s: float, proposal: Proposal) -> list[Effect]:
        """The plan that was asked for."""
        if self.state != "planning":
            return []
        steps = tuple(step.change for step in proposal.steps)
        forecast = proposal.steps[-1].predicted if proposal.steps else None
        self._note(
            at_s,
            "planned",
            proposal.words,
            changes=steps,
            measured=self._measured,
            predicted=forecast,
            advice=proposal.advice,
        )
        why = self._objection(at_s, proposal)
        if why:
            self._go("nothing")
            self._rest(at_s, why)
        elif not self.settings.may_apply:
            for step in proposal.steps:
                words = f"would {step.change.words}; give --apply to have it done"
                self._note(at_s, "would apply", words, change=step.change, predicted=step.predicted)
            self._go("nothing")
            self._rest(at_s, "dry run")
        else:
            self._steps = list(proposal.steps)
            self._down = self._seen[-1].down
            self._go("chosen")
            self._begin(at_s)
        return self._finish()

    def applied(self, at_s: float, *, done: bool, why: str = "") -> list[Effect]:
        """The change that was ordered is in effect, or could not be made. It is recorded even after a stop."""
        if self.state not in ("applying", "stopped") or not self.memory.pending:
            return []
        change = self.memory.pending[-1].change
        if done:
            self._note(at_s, "applied", change.words, change=change)
        else:
            self._note(at_s, "refused", f"could not {change.words}: {why}", change=change)
        if self.state == "stopped":
            return self._finish()
        if done:
            self._go("done")
            self._count_from(at_s)
        elif self.memory.pending:
            self._fail(at_s, "a later step of the plan could not be made")
        else:
            self._go("refused")
            self._rest(at_s, "the change could not be made")
        return self._finish()

    def reverted(self, at_s: float, *, done: bool, why: str = "") -> list[Effect]:
        """A change has been taken back, or could not be."""
        if self.state not in ("reverting", "stopped") or not self.memory.pending:
            return []
        last = self.memory.pending[-1]
        if done:
            self._note(at_s, "rolled back", f"took back: {last.change.words}", change=last.change, inverse=last.inverse)
        else:
            self._tries += 1
            if self._tries < TRIES:
                self._is_asked = False  # again with the next observation
                return []
            words = f"could not take back: {last.change.words} ({why}); it stays. To undo it: {last.inverse.words}"
            self._note(at_s, "not rolled back", words, change=last.change, inverse=last.inverse)
        if self.state == "stopped":
            return self._finish()
        self._tries, self._is_asked = 0, False
        if self.memory.pending:
            self._go("open")
            self._take_back()
        else:
            self._go("done")
            self._rest(at_s, "a change was taken back")
        return self._finish()

    def stop(self, at_s: float, why: str) -> list[Effect]:
        """Make no change any more, and take none back."""
        if self.state == "stopped":
            return []
        self.state = "stopped"
        words = why
        if self.memory.pending:
            made = "; ".join(f"{each.change.words} (to undo it: {each.inverse.words})" for each in self.memory.pending)
            words += f"; made and not judged, so it stays: {made}"
        self._note(at_s, "stopped", words)
        return self._finish()

    # -- states ------------------------------------------------------------------------------------------------------

    def _resume(self, seen: Observation) -> None:
        """What the memory calls ordered is in effect, or not; an order that was under way may take RESUME_S."""
        if len(self._seen) == 1:
            self._note(seen.at_s, "started", _words(self.settings))
        is_open = any(not _is_in_effect(each.change, seen) for each in self.memory.pending)
        if is_open and seen.at_s < self._seen[0].at_s + RESUME_S:
            return
        for each in list(self.memory.pending):
            if not _is_in_effect(each.change, seen):
                self._note(seen.at_s, "not in effect", f"{each.change.words}: not so now", change=each.change)
            elif not each.is_applied:
                self._note(seen.at_s, "applied", f"{each.change.words}: found in effect", change=each.change)
        if self.memory.pending:
            self._measured = self.memory.pending[0].measured
            self._down = seen.down
            self._go("done")
            self._count_from(seen.at_s)
        else:
            self._go("seen")

    def _watch(self, seen: Observation) -> None:
        measured = self._recent(seen, seen.at_s - self.settings.window_s)
        if measured is not None and measured.is_short:
            self._since_s = seen.at_s
            self._go("short")
            self._note(seen.at_s, "short", _missed(measured), measured=measured)
        else:
            self._holds = 0

    def _suspect(self, seen: Observation) -> None:
        measured = self._recent(seen, seen.at_s - self.settings.window_s)
        if measured is None or not measured.is_short:
            self._go("met")
            self._holds = 0
            self._note(seen.at_s, "met", "the objective is met again", measured=measured)
        elif seen.at_s - self._since_s >= self.settings.suspect_s:
            self._measured = measured
            self._go("lasting")
            kinds = ("scheduling", "move")
            worths = {kind: self.memory.worth(kind) for kind in kinds}
            alone = self.memory.left_alone(seen.at_s)
            self._effects.append(
                AskPlan(since_s=self._since_s, left_alone=alone, worths=worths, measured=measured.worst)
            )

    def _hold(self, seen: Observation) -> None:
        if seen.at_s >= self._until_s:
            self._go("rested")
            self._watch(seen)

    def _objection(self, at_s: float, proposal: Proposal) -> str:
        """Why nothing is done about a plan; empty if it is."""
        if not proposal.steps:
            return "no change that it may make helps"
        forecast = proposal.steps[-1].predicted
        worth = min(self.memory.worth(step.change.kind) for step in proposal.steps)
        if forecast.gain * worth < self.settings.gain_least:
            return f"a gain of {forecast.gain * worth:.3g} is not worth a change"
        if not self.settings.may_apply:
            return ""
        if not self._may_change(at_s):
            return f"{self.settings.changes_max} changes in {self.settings.changes_span_s:g} s are enough"
        if _inverse(proposal.steps[0].change, self._seen[-1]) is None:
            return f"how to undo it is not known: {proposal.steps[0].change.words}"
        return ""

    def _may_change(self, at_s: float) -> bool:
        recent = [one for one in self.memory.ordered_s if one > at_s - self.settings.changes_span_s]
        return len(recent) < self.settings.changes_max

    def _begin(self, at_s: float) -> None:
        """Order the next step."""
        step = self._steps.pop(0)
        inverse = _inverse(step.change, self._seen[-1])
        assert inverse is not None
        assert self._measured is not None
        worth = self.memory.worth(step.change.kind)
        predicted = msgspec.structs.replace(step.predicted, worth=round(worth, 4))
        self._note(
            at_s,
            "applying",
            step.change.words,
            change=step.change,
            inverse=inverse,
            measured=self._measured,
            predicted=predicted,
        )
        self._effects.append(Apply(change=step.change))

    def _count_from(self, at_s: float) -> None:
        self._since_s = at_s + self.settings.settle_s

    def _judge(self, seen: Observation) -> None:
        settings, before, elapsed_s = self.settings, self._measured, seen.at_s - self._since_s
        if elapsed_s < settings.window_s:
            return
        after = self._recent(seen, max(seen.at_s - settings.window_s, self._since_s))
        is_over = elapsed_s >= settings.judge_s
        if seen.down != self._down:
            recent = (each for each in self._seen if each.at_s >= seen.at_s - settings.window_s)
            if all(each.down != self._down for each in recent):
                why = "brokers have failed or returned since, so it is not clear"
                self._keep(seen.at_s, after, is_clear=False, why=why)
            return
        if before is None or after is None or not self._has_heard(before.worst, seen):
            if is_over:  # who was short gets nothing any more: nothing proves that it helped
                self._fail(seen.at_s, "there are no accounts of those below the objective to judge it by")
            return
        gain = before.shortfall - after.shortfall
        noise = SURE * (before.error**2 + after.error**2) ** 0.5
        if gain >= settings.gain_least and (gain > noise or (is_over and not after.is_short)):
            self._keep(seen.at_s, after, is_clear=True, why="it helped")
        elif elapsed_s >= 2.0 * settings.window_s and -gain >= settings.gain_least and -gain > noise:
            self._fail(seen.at_s, "it did harm", after)
        elif is_over:
            following = self._steps[0].change if self._steps else None
            is_possible = following is not None and _inverse(following, seen) is not None
            if is_possible and self._may_change(seen.at_s):
                self._go("open")
                self._begin(seen.at_s)
            else:
                self._fail(seen.at_s, "it did not help", after)

    def _keep(self, at_s: float, after: Measure | None, *, is_clear: bool, why: str) -> None:
        self._note_verdict(
            at_s, "kept", f"{why}: {self._change_words}{_effect(self._measured, after)}", after, is_clear
        )
        self._steps.clear()  # if more is needed, a new plan knows what this one did
        self._go("helped")
        self._holds = 0
        self._until_s = at_s + self.settings.rest_s

    def _fail(self, at_s: float, why: str, after: Measure | None = None) -> None:
        words = f"{why}: {self._change_words}{_effect(self._measured, after)}"
        self._note_verdict(at_s, "rolling back", words, after, after is not None)
        self._steps.clear()
        self._tries, self._is_asked = 0, False
        self._go("failed")
        self._take_back()

    def _take_back(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            last = self.memory.pending[-1]
            self._effects.append(Revert(change=last.change, inverse=last.inverse))

    def _rest(self, at_s: float, why: str) -> None:
        """Hold, longer each time in a row."""
        pause_s = min(self.settings.hold_s * 2.0 ** min(self._holds, 30), self.settings.hold_most_s)
        self._holds += 1
        self._until_s = at_s + pause_s
        self._note(at_s, "holding", f"{why}; looks again in {pause_s:g} s")

    # -- helpers -----------------------------------------------------------------------------------------------------

    @property
    def _change_words(self) -> str:
        return "; ".join(each.change.words for each in self.memory.pending)

    @property
    def _span_s(self) -> float:
        """How far back observations are needed."""
        return self.settings.window_s + self.settings.settle_s + self.settings.judge_s

    def _has_heard(self, names: Collection[str], seen: Observation) -> bool:
        """Whether events of most of these subscriptions were settled since the accounts began to count."""
        first = next((each for each in self._seen if each.at_s >= self._since_s), seen).accounts
        heard = sum(
            name in seen.accounts and name in first and seen.accounts[name].settled > first[name].settled
            for name in names
        )
        return 2 * heard >= len(names)

    def _recent(self, seen: Observation, from_s: float) -> Measure | None:
        """The accounts from the last observation at or before this time on; while verifying, the first after it, so
        that nothing from before the change counts. None if there is none, or nothing was settled since."""
        if self.state == "verifying":
            first = next((each for each in self._seen if each.at_s >= from_s), None)
        else:
            first = next((each for each in reversed(self._seen) if each.at_s <= from_s), None)
        if first is None or first is seen:
            return None
        found = measure(first.accounts, seen.accounts, self._objective)
        return found if found.subscriptions else None

    def _go(self, event: _Event) -> None:
        self.state = _NEXT[self.state, event]

    def _note(self, at_s: float, kind: Kind, words: str, **more: Any) -> None:
        record = Record(at_s=at_s, kind=kind, words=words, **more)
        self.memory.note(record)
        self._effects.append(Note(record=record))

    def _note_verdict(self, at_s: float, kind: Kind, words: str, after: Measure | None, is_clear: bool) -> None:
        pending = self.memory.pending
        self._note(
            at_s,
            kind,
            words,
            changes=tuple(each.change for each in pending),
            measured=self._measured,
            predicted=pending[-1].predicted,
            after=after,
            is_clear=is_clear,
        )

    def _finish(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _is_in_effect(change: Change, seen: Observation) -> bool:
    match change:
        case MovePublisher(publisher=client, broker=broker):
            return seen.homes.get(client) == broker
        case UseStrategy(strategy=strategy):
            return seen.strategy == strategy


def _inverse(change: Change, seen: Observation) -> Change | None:
    """What takes a change back; None if the present state is not known, or the same."""
    match change:
        case MovePublisher(publisher=client, broker=broker):
            home = seen.homes.get(client)
            return None if home in (None, broker) else MovePublisher(publisher=client, broker=str(home))
        case UseStrategy(strategy=strategy):
            now = seen.strategy
            return (
                None
                if now in (None, strategy)
                else msgspec.convert({"change": "scheduling", "strategy": now}, UseStrategy)
            )


def _words(settings: AutopilotSettings) -> str:
    whom = "every subscription" if settings.share == 1.0 else f"{percent(settings.share)} of the subscriptions"
    how = "makes changes" if settings.may_apply else "dry run"
    return f"objective {percent(settings.slo)} on time for {whom}; {how}"


def _missed(measured: Measure) -> str:
    share = "" if measured.on_time_share is None else f", mean on-time share {percent(measured.on_time_share)}"
    return f"{measured.below:,} of {measured.subscriptions:,} subscriptions below the objective{share}"


def _effect(before: Measure | None, after: Measure | None) -> str:
    if before is None or after is None or before.on_time_share is None or after.on_time_share is None:
        return ""
    shares = f"{percent(before.on_time_share)} -> {percent(after.on_time_share)} on time"
    return f" ({shares}; below the objective {before.below:,} -> {after.below:,})"
