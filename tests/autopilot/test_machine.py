"""The decisions of an autopilot, in virtual time."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autopilot.world import World, move, proposal

from tidings.autopilot import Apply, AskPlan, Autopilot, AutopilotSettings, Memory, Proposal
from tidings.autopilot._audit import BAN_S
from tidings.autopilot._machine import RESUME_S, TRIES
from tidings.errors import ConfigurationError
from tidings.planning import UseStrategy

MINUTES = 60.0
AWAY = {"a": 0.4, "b": 1.0, "c": 0.4}


def by_home(world: World) -> list[float]:
    """On time only if the publisher is at b."""
    return [AWAY[world.homes["p"]]] * world.subscriptions


def to(*brokers: str, gain: float = 2.0):  # type: ignore[no-untyped-def]
    """A planner that proposes to move p to the first of these brokers where it is not, unless it may not be moved."""

    def plan(world: World, asked: AskPlan) -> Proposal:
        free = [broker for broker in brokers if broker != world.homes["p"]]
        if ("publisher", "p") in asked.left_alone or not free:
            return Proposal(words="nothing helps")
        return proposal(move(free[0]), gain=gain)

    return plan


def test_a_healthy_network_is_left_alone_for_ten_minutes() -> None:
    world = World(lambda world: [0.999] * world.subscriptions, to("b"), seed=3).run(10 * MINUTES)
    assert (world.kinds, world.orders, world.plans) == (["started"], [], 0)


def test_a_hot_spot_is_over_within_a_minute() -> None:
    world = World(by_home, to("b"))
    kept = world.run_until("kept")
    assert kept.at_s - world.records[1].at_s < 60.0
    assert world.homes == {"p": "b"}
    assert [kind for kind in world.kinds if kind != "started"] == ["short", "planned", "applying", "applied", "kept"]
    assert kept.measured is not None
    assert kept.after is not None
    assert (kept.measured.below, kept.after.below) == (4, 0)
    world.run(10 * MINUTES)
    assert len(world.orders) == 1


def test_a_dry_run_writes_down_what_it_would_do_and_does_nothing() -> None:
    world = World(by_home, to("b"), AutopilotSettings()).run(2 * MINUTES)
    assert world.orders == []
    record = next(record for record in world.records if record.kind == "would apply")
    assert record.change == move("b")
    assert record.predicted is not None


def test_a_change_that_does_not_help_is_taken_back_and_not_tried_again_soon() -> None:
    world = World(by_home, to("c"))
    verdict = world.run_until("rolling back")
    assert "did not help" in verdict.words
    world.run_until("rolled back")
    assert world.homes == {"p": "a"}
    first_s = world.orders[0][0]
    world.run(BAN_S - 60.0)
    assert len(world.orders) == 2, "the change and its inverse"
    world.run_until("applying", 2 * BAN_S)
    world.run_until("rolled back")
    assert world.orders[2][0] - first_s > BAN_S
    assert world.autopilot.memory.worth("move") < 0.6


def test_harm_is_taken_back_before_the_time_is_over() -> None:
    def shares(world: World) -> list[float]:
        return [0.8 if world.homes["p"] == "a" else 0.1] * world.subscriptions

    world = World(shares, to("c"))
    verdict = world.run_until("rolling back")
    applied = next(record for record in world.records if record.kind == "applied")
    assert "harm" in verdict.words
    assert verdict.at_s - applied.at_s < world.settings.judge_s
    world.run_until("rolled back")
    assert world.homes == {"p": "a"}


def test_events_that_wait_for_ever_do_not_hide() -> None:
    """After the change nobody gets anything, so nothing is late."""
    world = World(by_home, to("c"), holds=lambda world: world.homes["p"] == "c")
    verdict = world.run_until("rolling back")
    assert verdict.after is not None
    assert (verdict.after.below, verdict.after.on_time_share) == (4, 0.0)


def test_a_change_after_which_there_are_no_events_has_not_proved_itself() -> None:
    world = World(by_home, to("b"))
    world.run_until("applied")
    world.rate_per_s = 0.0
    verdict = world.run_until("rolling back")
    assert (verdict.is_clear, world.autopilot.memory.judged("move")) == (False, 0)


def test_steps_that_help_only_together_are_judged_together() -> None:
    def shares(world: World) -> list[float]:
        return [1.0 if (world.homes["p"], world.strategy) == ("b", "lookahead") else 0.5] * world.subscriptions

    def plan(*_: object) -> Proposal:
        return proposal(UseStrategy(strategy="lookahead"), move("b"), gain=2.0)

    world = World(shares, plan)
    kept = world.run_until("kept")
    assert kept.changes == (UseStrategy(strategy="lookahead"), move("b"))
    assert (world.homes, world.strategy) == ({"p": "b"}, "lookahead")

    wrong = World(lambda world: [0.5] * world.subscriptions, plan)
    wrong.run_until("holding")
    assert (wrong.homes, wrong.strategy) == ({"p": "a"}, "fifo")
    assert [change for _, change in wrong.orders[2:4]] == [move("a"), UseStrategy(strategy="fifo")], "the last first"


def test_a_step_that_suffices_makes_the_others_unnecessary() -> None:
    world = World(by_home, lambda *_: proposal(move("b"), UseStrategy(strategy="lookahead"), gain=2.0))
    world.run_until("kept")
    world.run(5 * MINUTES)
    assert len(world.orders) == 1


def test_a_plan_without_changes_is_asked_for_ever_more_rarely() -> None:
    def plan(*_: object) -> Proposal:
        return Proposal(words="nothing", advice=("make link a -> b 2 times as fast",))

    world = World(lambda world: [0.5] * world.subscriptions, plan).run(60 * MINUTES)
    assert 3 <= world.plans <= 8
    assert any(record.advice == ("make link a -> b 2 times as fast",) for record in world.records)


def test_a_gain_that_is_too_small_for_what_predictions_were_worth_changes_nothing() -> None:
    world = World(by_home, to("b", gain=0.01)).run(3 * MINUTES)
    assert world.orders == []
    assert any("not worth a change" in record.words for record in world.records)


def test_no_more_changes_than_allowed_in_ten_minutes() -> None:
    """Every publisher that is moved helps a little, and the objective is never met."""

    def shares(world: World) -> list[float]:
        return [0.1 + 0.1 * sum(home == "b" for home in world.homes.values())] * world.subscriptions

    def plan(world: World, _: AskPlan) -> Proposal:
        left = [name for name, home in world.homes.items() if home == "a"]
        return proposal(move("b", left[0]), gain=0.4) if left else Proposal(words="all moved")

    chosen = AutopilotSettings(may_apply=True, changes_max=3)
    homes = {f"p{number}": "a" for number in range(8)}
    world = World(shares, plan, chosen, homes=homes, rate_per_s=50.0).run(60 * MINUTES)
    times = [at_s for at_s, _ in world.orders]
    assert len(times) == 8, "all of them in the end"
    for first, fourth in zip(times, times[3:], strict=False):
        assert fourth - first >= chosen.changes_span_s - 2.0
    assert any("are enough" in record.words for record in world.records)


def test_after_the_kill_switch_nothing_is_applied_or_taken_back() -> None:
    world = World(by_home, to("c"))
    world.run_until("applied")
    world.stop()
    world.run(20 * MINUTES)
    assert [change for _, change in world.orders] == [move("c")]
    last = world.records[-1]
    assert last.kind == "stopped"
    assert move("a").words in last.words, "how to undo it"
    world.start()
    world.run_until("rolled back")
    assert world.homes == {"p": "a"}, "the next start judges it"


def test_an_order_under_way_is_recorded_after_the_kill_switch() -> None:
    world = World(by_home, to("b"))
    world.run_until("applying")
    world.stop()
    world.run(5 * MINUTES)
    assert world.kinds[-2:] == ["stopped", "applied"]
    world.start()
    assert world.run_until("kept").changes == (move("b"),)


@pytest.mark.parametrize("kind", ["applying", "applied"])
@pytest.mark.parametrize(("target", "verdict"), [("b", "kept"), ("c", "rolled back")])
def test_killed_in_the_middle_of_a_change_it_continues_from_its_log(kind: str, target: str, verdict: str) -> None:
    world = World(by_home, to(target))
    world.run_until(kind)
    if kind == "applying":
        world.homes["p"] = target  # the client has heard the order
    world.start()
    world.run_until(verdict)
    assert world.homes == {"p": "b" if target == "b" else "a"}
    assert not world.autopilot.memory.pending


def test_killed_before_the_order_was_heard_nothing_is_taken_back() -> None:
    world = World(by_home, lambda *_: Proposal(words="nothing"))
    world.planner = to("c")
    world.run_until("applying")
    world.planner = lambda *_: Proposal(words="nothing")
    world.start()
    late = world.run_until("not in effect")
    assert late.at_s - next(one.at_s for one in world.records[::-1] if one.kind == "started") >= RESUME_S
    world.run(5 * MINUTES)
    assert (world.homes, world.orders) == ({"p": "a"}, [])


def test_killed_while_taking_back_it_takes_back_or_judges_again() -> None:
    world = World(by_home, to("c"))
    world.run_until("rolling back")
    world.start()
    world.run_until("rolled back")
    assert world.homes == {"p": "a"}


def test_a_change_that_is_refused_is_not_asked_for_again_soon() -> None:
    world = World(by_home, to("b"), refuses={"p"}).run(5 * MINUTES)
    assert len(world.orders) == 1
    assert "refused" in world.kinds


def test_what_cannot_be_taken_back_stays_and_is_reported() -> None:
    world = World(by_home, to("c"))
    world.run_until("applied")
    world.refuses.add("p")
    record = world.run_until("not rolled back")
    assert move("a").words in record.words
    assert len(world.orders) == 1 + TRIES
    world.run(5 * MINUTES)
    assert len(world.orders) == 1 + TRIES


def test_when_a_broker_fails_meanwhile_the_accounts_do_not_judge_the_change() -> None:
    world = World(by_home, to("c"))
    world.run_until("applied")
    world.down = frozenset("d")
    kept = world.run_until("kept")
    assert (kept.is_clear, world.autopilot.memory.judged("move")) == (False, 0)
    assert world.homes == {"p": "c"}


def test_a_broker_that_is_silent_for_a_moment_does_not_spare_a_change_its_verdict() -> None:
    world = World(by_home, to("c"))
    world.run_until("applied")
    for _ in range(30):
        world.down = frozenset("d") if not world.down else frozenset()
        world.run(3.0)
    assert "kept" not in world.kinds
    assert world.homes == {"p": "a"}


def test_predictions_that_were_wrong_count_less() -> None:
    memory = Memory()
    assert memory.worth("move") == 1.0
    world = World(by_home, to("c"))
    world.run_until("rolled back")
    assert world.autopilot.memory.worth("move") == pytest.approx(2.0 / 3.0, abs=0.05)
    assert Memory(world.records).worth("move") == world.autopilot.memory.worth("move")
    right = World(by_home, to("b", gain=2.3))
    right.run_until("kept")
    assert right.autopilot.memory.worth("move") > 0.9


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    base=st.lists(st.floats(0.90, 1.0), min_size=1, max_size=6),
    gains=st.tuples(st.floats(-0.05, 0.05), st.floats(-0.05, 0.05)),
    rate_per_s=st.sampled_from([0.2, 2.0, 20.0]),
    wave=st.floats(0.0, 0.1),
)
def test_no_oscillation_however_noisy_the_accounts_are(
    seed: int, base: Sequence[float], gains: tuple[float, float], rate_per_s: float, wave: float
) -> None:
    """Near the objective, with loads that come and go, and a planner that always promises much of another place."""

    def shares(world: World) -> list[float]:
        here = {"a": 0.0, "b": gains[0], "c": gains[1]}[world.homes["p"]]
        tide = wave if world.now_s % 180.0 < 60.0 else 0.0
        return [each + here - tide for each in base]

    world = World(shares, to("b", "c"), seed=seed, subscriptions=len(base), rate_per_s=rate_per_s)
    world.run(30 * MINUTES)
    made = [record.at_s for record in world.records if record.kind == "applying"]
    for first, later in zip(made, made[world.settings.changes_max :], strict=False):
        assert later - first >= world.settings.changes_span_s
    # Nobody is moved again, except back at once, before 5 minutes have passed.
    for first, later in pairwise(made):
        assert later - first >= 300.0
    assert len(world.orders) <= 2 * len(made)


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"slo": 1.0}, {"share": 0.0}, {"window_s": 0.0}, {"judge_s": 5.0}, {"changes_max": 0}):
        with pytest.raises(ConfigurationError):
            AutopilotSettings(**wrong)  # type: ignore[arg-type]


def test_observations_out_of_order_and_answers_that_nobody_waits_for_change_nothing() -> None:
    world = World(by_home, to("b"))
    world.run_until("short")
    autopilot: Autopilot = world.autopilot
    earlier = msgspec.structs.replace(world.seen(), at_s=world.now_s - 100.0)
    assert autopilot.observe(earlier) == []
    assert autopilot.planned(world.now_s, proposal(move("b"))) == []
    assert autopilot.applied(world.now_s, done=True) == []
    assert autopilot.reverted(world.now_s, done=True) == []
    assert not any(isinstance(effect, Apply) for effect in autopilot.stop(world.now_s, "enough"))
