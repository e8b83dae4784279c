"""Publishers that move during a run: by the rules of live brokers, whatever the buffers, every event accounted for."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.simulation.test_matrix import counts, renamed

from tidings.errors import ConfigurationError
from tidings.model import Network, Scenario
from tidings.model.distributions import Deterministic
from tidings.model.scenario import Access
from tidings.model.scenario_file import to_toml
from tidings.routing import Overlay, shortest_path_tree
from tidings.simulation import Options, Result, simulate

LINE = """
duration = "{minutes} min"
seed = 3
[topology]
kind = "explicit"
brokers = ["a", "b", "c", "d", "e"]
links = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"]]
direction = "{direction}"
[links]
slowness = {{ law = "normal", mean = "20 ms/kB", sd = "5 ms/kB" }}
propagation = "10 ms"
{failures}
[[publishers]]
name = "p"
at = "a"
count = 3
rate = "3 /s"
size = "1 kB"
attributes = {{ x = {{ law = "uniform", low = 0, high = 10 }} }}
[[subscribers]]
name = "s"
at = ["d", "e"]
count = 6
filter = "x < {{most}}"
parameters = {{ most = {{ law = "uniform", low = 2, high = 10 }} }}
max_delay = "110 ms"
[policies]
relocation = {relocation}
{policies}
"""


def line(
    relocation: str, *, minutes: int = 8, policies: str = "", failures: str = "", direction: str = "both"
) -> Network:
    text = LINE.format(
        relocation=relocation if relocation.startswith("{") else f'"{relocation}"',
        minutes=minutes,
        policies=policies,
        failures=failures,
        direction=direction,
    )
    return Scenario.parse(text).expand()


def same(one: Result, other: Result) -> bool:
    return msgspec.structs.replace(one, wall_s=0.0) == msgspec.structs.replace(other, wall_s=0.0)


@pytest.mark.parametrize("name", ["pop", "grape", "on-time"])
def test_publishers_come_to_where_their_subscribers_are(name: str) -> None:
    stays, moves = simulate(line("off")), simulate(line(name))
    assert stays.relocation is None
    assert moves.relocation is not None
    assert moves.relocation.homes == {"p-1": "d", "p-2": "d", "p-3": "d"}
    assert moves.relocation.moves == 3
    assert moves.matched == stays.matched == moves.on_time + moves.late + moves.lost + moves.in_flight
    assert stays.delivery_rate is not None
    assert moves.delivery_rate is not None
    assert moves.delivery_rate > stays.delivery_rate + 0.15
    assert moves.traffic < 0.8 * stays.traffic


@pytest.mark.parametrize("name", ["pop", "grape", "on-time"])
def test_names_and_buffers_change_nothing(name: str) -> None:
    made = line(name, minutes=5)
    whole = simulate(made)
    assert whole.relocation is not None
    assert whole.relocation.moves == 3
    assert same(simulate(made), whole)
    assert same(simulate(made, Options(chunk_events=17, steps_per_call=101)), whole)
    other, mine = counts(simulate(renamed(made))), counts(whole)
    names = {"relocation"}
    assert {key: value for key, value in other.items() if key not in names} == {
        key: value for key, value in mine.items() if key not in names
    }
    assert other["relocation"]["homes"] == {"q" + publisher: "z2" for publisher in whole.relocation.homes}


def test_nobody_moves_before_its_stay_and_its_sample(tmp_path: Path) -> None:
    made = line('{ name = "on-time", events = 40, stay = "30 s" }', minutes=3)
    simulate(made, out=tmp_path)
    events = pq.read_table(tmp_path / "publications").to_pandas().sort_values("departure_ns")
    wanted = pq.read_table(tmp_path / "deliveries").to_pandas()
    for publisher, rows in events.groupby("publisher"):
        at_first = rows[rows.broker == "a"]
        begun_ns, left_ns = at_first.departure_ns.min(), at_first.departure_ns.max()
        sampled = at_first[at_first.departure_ns >= begun_ns + 30e9]
        delivered = set(wanted[wanted.publisher == publisher].sequence)
        assert rows.broker.iloc[-1] == "d"
        assert (rows[rows.departure_ns > left_ns].broker == "d").all()
        # 40 that somebody wants; few of those are lost or dropped on a line that is not busy
        assert 35 <= sum(number in delivered for number in sampled.sequence) <= 40
    hops = pq.read_table(tmp_path / "hops").to_pandas()
    assert set(hops[hops.source.isna()].target) == {"a", "d"}


@pytest.mark.parametrize("name", ["pop", "grape", "on-time"])
def test_publishers_move_between_brokers_and_never_to_a_subscriber(name: str) -> None:
    """Behind access links subscribers have brokers of their own in the run; decisions do not know them."""
    made = line(name)
    distant = msgspec.structs.replace(
        made,
        subscribers=tuple(
            msgspec.structs.replace(each, access=Access(propagation=Deterministic(value=0.001)))
            for each in made.subscribers
        ),
    )
    plain, behind = simulate(made).relocation, simulate(distant).relocation
    assert plain == behind


def test_a_scenario_file_keeps_how_publishers_move() -> None:
    made = line('{ name = "on-time", events = 50, hysteresis = 0.1, stay = "7 s" }', minutes=2)
    again = Scenario.parse(to_toml(made)).expand()
    assert again.policies.relocation == made.policies.relocation
    assert same(simulate(again), simulate(made))


def test_a_publisher_whose_deliveries_are_on_time_stays() -> None:
    made = line("on-time")
    easy = msgspec.structs.replace(
        made, subscriptions=tuple(msgspec.structs.replace(s, max_delay_s=30.0) for s in made.subscriptions)
    )
    found = simulate(easy).relocation
    assert found is not None
    assert (found.moves, set(found.homes.values())) == (0, {"a"})
    by_load = msgspec.structs.replace(easy, policies=line("grape").policies)
    found = simulate(by_load).relocation
    assert found is not None
    assert set(found.homes.values()) == {"d"}


def test_where_links_fail_and_receivers_order_everything_is_accounted_for() -> None:
    made = line(
        "on-time",
        policies='ordering = "ours-record"\nfaults = { scheme = "bypass+buffer", refresh = "5 s", timeout = "30 s", '
        'retry = "1 s" }',
        failures='failures = { availability = 0.95, period = "60 s" }',
    )
    result = simulate(made)
    assert result.relocation is not None
    assert result.ordering is not None
    assert result.faults is not None
    assert result.relocation.moves >= 3
    assert result.matched == result.on_time + result.late + result.lost + result.in_flight
    assert same(simulate(made, Options(chunk_events=50)), result)


def test_what_cannot_move_is_refused_by_name() -> None:
    moving = line("pop")
    for routing in ("balanced", "multi-path", "literal-table"):
        policies = msgspec.structs.replace(moving.policies, routing=routing)
        with pytest.raises(ConfigurationError, match=f"'{routing}' routes are made.*write routing = \"single-path\""):
            simulate(msgspec.structs.replace(moving, policies=policies))
    with pytest.raises(ConfigurationError, match="access_slowness is given for publishers where they are"):
        simulate(moving, Options(access_slowness=[Deterministic(value=0.1)] * 3))
    trees = [shortest_path_tree(Overlay.of(moving.topology), 0, destinations=())] * 3
    with pytest.raises(ConfigurationError, match="trees is given for publishers where they are"):
        simulate(moving, Options(trees=trees))
    with pytest.raises(ConfigurationError, match="no link back"):
        simulate(line("pop", direction="forward"))
