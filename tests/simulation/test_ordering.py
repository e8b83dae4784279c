"""Order at the receivers of a run: against a replay of the run's own trace, and by what must hold."""

import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.simulation.ordering_twin import order_whole

from tidings.errors import ConfigurationError, ScenarioError
from tidings.model import Network, Scenario
from tidings.ordering import Policy, Streams, replay
from tidings.simulation import Options, Result, _ordering, simulate
from tidings.simulation._ordering import OrderedOutput
from tidings.simulation._plan import plan
from tidings.simulation._run import Run

TIGHTEST_NS = 25_000_000
"""The tighter deadline of the two in the scenario."""
SCENARIO = """
duration = "40 s"
warmup = "5 s"
seed = 3
topology = {{ kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }}
[links]
bandwidth = "100 Mbit/s"
propagation = "1 ms"
loss = 0.01
{failures}
[brokers]
processing = {{ law = "exponential", mean = "4 ms" }}
[[publishers]]
name = "p"
at = ["a", "c"]
count = 2
rate = "100 /s"
lifetime = "40 ms"
attributes = {{ x = {{ law = "uniform", low = 0, high = 10 }} }}
[[subscribers]]
name = "s"
at = "all"
per_broker = 2
filter = "x < {{most}}"
parameters = {{ most = {{ law = "uniform", low = 2, high = 10 }} }}
max_delay = "25 ms"
[policies]
scheduling = "fifo"
{policies}
"""


def network(policies: str = "", failures: str = "") -> Network:
    return Scenario.parse(SCENARIO.format(policies=policies, failures=failures)).expand()


def run(ordering: str | None, out: Path | None = None) -> Result:
    return simulate(network("" if ordering is None else f'ordering = "{ordering}"'), out=out)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of the same run without ordering."""
    place = tmp_path_factory.mktemp("plain")
    run(None, place)
    return place


def test_a_policy_without_a_record_does_what_a_replay_of_the_plain_trace_does(trace: Path, tmp_path: Path) -> None:
    result = run("P-0.05-0", tmp_path / "ordered")
    ordered = pq.read_table(tmp_path / "ordered" / "deliveries").to_pandas()
    plain = pq.read_table(trace / "deliveries").to_pandas()
    same = ["publisher", "sequence", "subscription", "broker", "arrived_ns"]
    assert ordered[same].equals(plain[same])
    assert (plain.delivered_ns == plain.arrived_ns).all()
    published = pq.read_table(trace / "publications").to_pandas().sort_values("sequence")
    violations = late = 0
    for (publisher, _), rows in ordered.groupby(["publisher", "subscription"]):
        departure = published[published.publisher == publisher].departure_ns.to_numpy()
        rows = rows.sort_values("arrived_ns")
        number = rows.sequence.to_numpy()
        streams = Streams.of_one_stream(
            sequence=number,
            departure_ns=departure[number],
            previous_departure_ns=departure[np.maximum(number - 1, 0)],
            arrival_ns=rows.arrived_ns,
        )
        deadline_ns = departure[number] + TIGHTEST_NS
        until_ns = np.where(rows.arrived_ns < deadline_ns, deadline_ns - 1, 2**62)
        found = replay(streams.held_until(until_ns), [Policy.parse("P-0.05-0")])["P-0.05-0"]
        assert (found.delivered_ns == rows.delivered_ns).all()
        violations, late = violations + found.total("violations").sum(), late + found.total("out_of_order").sum()
    assert result.ordering is not None
    assert (result.ordering.violations, result.ordering.out_of_order) == (violations, late)
    assert late > 1000
    assert result.ordering.repaired == 1 - violations / late


def test_on_time_is_what_the_application_gets_in_time(tmp_path: Path) -> None:
    plain, held = run(None), run("CST-20", tmp_path)
    assert held.ordering is not None
    assert plain.ordering is None
    assert held.matched == plain.matched
    assert held.lost == plain.lost
    assert held.traffic == plain.traffic
    assert held.on_time == plain.on_time  # 20 ms of 25 would be gone behind every gap: no hold lasts so long
    assert held.on_time + held.late == plain.on_time + plain.late
    deliveries = pq.read_table(tmp_path / "deliveries").to_pandas()
    published = pq.read_table(tmp_path / "publications").to_pandas()
    both = deliveries.merge(published, on=["publisher", "sequence"])
    counted = both[both.departure_ns >= 5_000_000_000]
    in_time = counted.delivered_ns - counted.departure_ns < TIGHTEST_NS
    assert held.on_time == in_time.sum()
    assert held.earnings == held.on_time
    assert held.delivery_rate == held.on_time / held.matched
    by_name = in_time.groupby(counted.subscription).sum()
    assert {name: row.on_time for name, row in held.subscribers.items()} == by_name.to_dict()
    hold_ms = (deliveries.delivered_ns - deliveries.arrived_ns) / 1e6
    assert held.ordering.hold_ms_mean == pytest.approx(hold_ms.mean())
    assert held.ordering.hold_ms_p99 == pytest.approx(hold_ms.quantile(0.99), rel=1e-3)  # to a bucket


def test_a_record_spares_the_wait_for_what_is_not_wanted() -> None:
    basic, enhanced = run("P-0.05-0").ordering, run("P-0.05-25").ordering
    assert basic is not None
    assert enhanced is not None
    assert enhanced.hold_ms_mean < basic.hold_ms_mean
    assert enhanced.out_of_order == basic.out_of_order
    text = SCENARIO.format(policies='ordering = "ours-record"', failures="")
    unhurried = text.replace('"25 ms"', '"5 s"').replace('"40 ms"', '"5 s"')
    ours, tight = (simulate(Scenario.parse(each).expand()).ordering for each in (unhurried, text))
    assert ours is not None
    assert tight is not None
    assert ours.repaired is not None
    assert tight.repaired is not None
    assert ours.repaired > 0.97
    assert tight.repaired < ours.repaired  # what is missing is waited for as long as there is time, and no longer


def test_the_same_with_and_without_a_trace_and_where_links_fail(tmp_path: Path) -> None:
    def figures(result: Result) -> object:
        return msgspec.structs.replace(result, wall_s=0.0)

    assert figures(run("ours-quantile", tmp_path / "t")) == figures(run("ours-quantile"))
    failures = 'failures = { availability = 0.95, period = "10 s" }'
    failing = simulate(network('ordering = "P-0.05-25"\nfaults = "static"', failures))
    assert failing.ordering is not None
    assert failing.faults is not None
    assert failing.on_time + failing.late + failing.lost + failing.in_flight == failing.matched


def test_what_cannot_work_is_said() -> None:
    with pytest.raises(ScenarioError, match="'P-x' is not an ordering policy"):
        network('ordering = "P-x"')
    with pytest.raises(ConfigurationError, match="violation_probability must be"):
        run("P-0.9-5")
    with pytest.raises(ConfigurationError, match="leave --sample out"):
        simulate(network('ordering = "CST-3"'), Options(sample=0.5))


FAILURES = 'failures = { availability = 0.9, period = "8 s" }'
IN_BLOCKS = [
    *((policy, "", "") for policy in ("P-0.05-0", "P-0.05-25", "CST-20", "Q-0.9", "ours-record", "ours-quantile")),
    ("ours-record", 'faults = { scheme = "buffer", retry = "1 s" }', FAILURES),
    ("P-0.2-5", 'faults = { scheme = "bypass+buffer", retry = "1 s" }', FAILURES),
    ("ours-quantile", 'routing = "multi-path"\nexpired = "forward"', ""),
]


@pytest.mark.parametrize(("policy", "policies", "failures"), IN_BLOCKS)
def test_blocks_of_any_size_decide_as_the_whole_run_does(
    policy: str, policies: str, failures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SCENARIO.format(policies=f'ordering = "{policy}"\n{policies}', failures=failures)
    for old, new in (("40 s", "12 s"), ("25 ms", "3 s"), ("40 ms", "10 s")) if failures else (("40 s", "12 s"),):
        text = text.replace(f'"{old}"', f'"{new}"')
    if "multi-path" in policies:  # events take no way back
        text = text.replace('at = ["a", "c"]', 'at = "a"')
    made = Scenario.parse(text).expand()
    arrived, delivered_ns, replayed = order_whole(made)
    whole = simulate(made)
    for rows in (1, 700):
        monkeypatch.setattr(_ordering, "BLOCK_ROWS", rows)
        monkeypatch.setattr(_ordering, "ROWS_PER_STREAM", 0)
        out = tmp_path / str(rows)
        pieces = simulate(made, Options(chunk_events=200), out=out)
        assert msgspec.structs.replace(pieces, wall_s=0.0) == msgspec.structs.replace(whole, wall_s=0.0)
        table = pq.read_table(out / "deliveries")
        assert (table["arrived_ns"].to_numpy() == arrived["arrived"]).all()
        assert (table["delivered_ns"].to_numpy() == delivered_ns).all()
    assert whole.ordering is not None
    assert whole.ordering.out_of_order == replayed.total("out_of_order").sum() > 100
    assert whole.ordering.violations == replayed.total("violations").sum()
    assert whole.ordering.forgotten == replayed.total("forgotten").sum()
    assert whole.ordering.hold_ms_mean == replayed.mean_hold_ns / 1e6
    p99_ms = np.quantile(delivered_ns - arrived["arrived"], 0.99, method="inverted_cdf") / 1e6
    assert whole.ordering.hold_ms_p99 == pytest.approx(p99_ms, rel=1e-3)


def test_memory_does_not_grow_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ordering, "BLOCK_ROWS", 2_000)
    rows, peaks, arrived = [], [], []
    for minutes in (1, 2, 4, 8):
        made = msgspec.structs.replace(network('ordering = "ours-record"'), duration_s=60.0 * minutes)
        options = Options(chunk_events=500)
        planned = plan(made, options)
        output = OrderedOutput(planned, Policy.parse("ours-record"), None)
        tracemalloc.start()
        run = Run(planned, options, output, None)
        run.go()
        output.end()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        rows.append(output.rows_peak)
        ordering = output.counted(run.result(), run.batches).ordering
        assert ordering is not None
        arrived.append(ordering.received)
    assert arrived[-1] > 7 * arrived[0] > 140_000
    assert max(rows) < 8_000
    assert max(peaks[1:]) < 1.1 * peaks[1]  # the first run also fills what the process keeps
