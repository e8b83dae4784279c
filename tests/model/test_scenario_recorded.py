"""Recorded values as a distribution: CSV and Parquet, beside the file, with errors that name the place."""

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tidings.errors import ScenarioError
from tidings.model.distributions import Empirical, Replay
from tidings.model.scenario import Scenario
from tidings.simulation import simulate

TEXT = """
duration = "60 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { propagation = DISTRIBUTION }
[[publishers]]
name = "p"
at = "a"
rate = "20 /s"
[[subscribers]]
name = "s"
at = "b"
filter = "TRUE"
max_delay = "30 ms"
"""
VALUES_MS = np.random.default_rng(2).gamma(3.0, 10.0, 2_000)


def write(directory: Path, distribution: str) -> Path:
    path = directory / "scenario.toml"
    path.write_text(TEXT.replace("DISTRIBUTION", distribution), "utf-8")
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_is_a_distribution(tmp_path: Path, kind: str) -> None:
    if kind == "csv":
        rows = "\n".join(f"{number},{value!r}" for number, value in enumerate(VALUES_MS.tolist()))
        (tmp_path / "delays.csv").write_text(f"row,delay\n{rows}\n", "utf-8")
    else:
        pq.write_table(pa.table({"row": range(len(VALUES_MS)), "delay": VALUES_MS}), tmp_path / "delays.parquet")
    distribution = f'{{ distribution = "recorded", file = "delays.{kind}", column = "delay", unit = "ms" }}'
    network = Scenario.load(write(tmp_path, distribution)).expand()
    found = network.topology.links[0].propagation
    assert isinstance(found, Empirical)
    assert found.mean() == pytest.approx(VALUES_MS.mean() / 1e3, rel=1e-3)
    share = float(np.mean(VALUES_MS < 30.0))
    assert simulate(network).delivery_rate == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        ('{ distribution = "recorded", column = "delay", unit = "ms" }', "needs `file`"),
        ('{ distribution = "recorded", file = "delays.csv", unit = "ms" }', "needs `column`"),
        ('{ distribution = "recorded", file = "delays.csv", column = "delay" }', "needs the `unit`"),
        (
            '{ distribution = "recorded", file = "delays.csv", column = "delay", unit = "kB" }',
            r"links\.propagation\.unit",
        ),
        ('{ distribution = "recorded", file = "delays.csv", column = "dely", unit = "ms" }', "did you mean `delay`"),
        ('{ distribution = "recorded", file = "none.csv", column = "delay", unit = "ms" }', "relative to the scenario"),
        (
            '{ distribution = "recorded", file = "holes.csv", column = "delay", unit = "ms" }',
            "holes.csv:3: delay is 'x'",
        ),
        ('{ distribution = "recorded", file = "below.csv", column = "delay", unit = "ms" }', "must be 0 or more"),
        ('{ distribution = "recorded", file = "one.csv", column = "delay", unit = "ms" }', "needs at least 2"),
        (
            '{ distribution = "recorded", file = "delays.csv", column = "delay", unit = "ms", n = 5 }',
            "no parameter `n`",
        ),
        (
            '{ distribution = "recorded", file = "holes.parquet", column = "delay", unit = "ms" }',
            "row 2 of delay is None",
        ),
        (
            '{ distribution = "recorded", file = "words.parquet", column = "delay", unit = "ms" }',
            "cannot be read as numbers",
        ),
        ('{ distribution = "recordd", file = "delays.csv", column = "delay", unit = "ms" }', "did you mean `recorded`"),
    ],
)
def test_errors_name_file_key_and_remedy(tmp_path: Path, distribution: str, message: str) -> None:
    for name, lines in {"delays": "1\n2", "holes": "1\nx", "below": "1\n-2", "one": "1"}.items():
        (tmp_path / f"{name}.csv").write_text(f"delay\n{lines}\n", "utf-8")
    pq.write_table(pa.table({"delay": [1.0, None]}), tmp_path / "holes.parquet")
    pq.write_table(pa.table({"delay": ["a", "b"]}), tmp_path / "words.parquet")
    path = write(tmp_path, distribution)
    with pytest.raises(ScenarioError, match=message) as raised:
        Scenario.load(path)
    assert f"{path}:4" in str(raised.value)


def delays_of(directory: Path, distribution: str) -> np.ndarray:
    """How long each event was on its way, in milliseconds, in the order of publication."""
    network = Scenario.load(write(directory, distribution)).expand()
    simulate(network, out=directory / "trace")
    hops = pq.read_table(directory / "trace" / "hops").sort_by("sequence")
    hops = hops.filter(pc.is_valid(hops["source"]))  # the first step is from the publisher to its broker
    return (hops["received_ns"].to_numpy() - hops["sent_ns"].to_numpy()) / 1e6


@pytest.mark.parametrize("then", ["repeat", "last"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_replay_takes_the_recorded_values_one_after_the_other(tmp_path: Path, kind: str, then: str) -> None:
    recorded = np.array([7.0, 3.0, 11.0, 5.0] * 50)
    if kind == "csv":
        (tmp_path / "delays.csv").write_text("delay\n" + "\n".join(map(str, recorded)) + "\n", "utf-8")
    else:
        pq.write_table(pa.table({"delay": recorded}), tmp_path / "delays.parquet")
    distribution = (
        f'{{ distribution = "replay", file = "delays.{kind}", column = "delay", unit = "ms", then = "{then}" }}'
    )
    found = delays_of(tmp_path, distribution)
    assert len(found) > 2 * len(recorded)
    places = np.arange(len(found))
    expected = recorded[places % len(recorded) if then == "repeat" else np.minimum(places, len(recorded) - 1)]
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_replay_may_be_written_in_place_and_every_link_begins_at_its_first_value() -> None:
    text = TEXT.replace("DISTRIBUTION", '{ distribution = "replay", values = ["10 ms", "20 ms"] }')
    text = text.replace('"a", "b"]', '"a", "b", "c"]', 1).replace('["a", "b"]]', '["a", "b"], ["b", "c"]]')
    text = text.replace('at = "b"', 'at = "c"').replace('rate = "20 /s"', 'interval = "1 s"')  # nothing overtakes
    network = Scenario.parse(text).expand()
    first, second = (link.propagation for link in network.topology.links if link.source < link.target)
    assert first is second  # one recording for all, held once
    # 10 + 10, then 20 + 20 ms: half of the events are within 30 ms, whatever the seed
    result = simulate(network)
    assert abs(2 * result.on_time - result.matched) <= 1
    assert simulate(network).on_time == result.on_time


def test_predictions_say_that_they_leave_out_the_order() -> None:
    from tidings.prediction import from_network, predict

    text = TEXT.replace("DISTRIBUTION", '{ distribution = "replay", values = ["10 ms", "20 ms", "60 ms", "20 ms"] }')
    network = Scenario.parse(text).expand()
    answer = predict(from_network(network))
    left_out = {each.kind: each for each in answer.unmodelled}
    assert "random" in left_out["replay"].effect
    assert left_out["replay"].links == ("a -> b", "b -> a")
    drawn = Scenario.parse(
        TEXT.replace("DISTRIBUTION", '{ distribution = "discrete", values = ["10 ms", "20 ms", "60 ms", "20 ms"] }')
    )
    assert answer.reliability[0] == pytest.approx(predict(from_network(drawn.expand())).reliability[0], abs=0.05)


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        ('{ distribution = "replay", file = "delays.csv", unit = "ms" }', "distribution `replay` needs `column`"),
        (
            '{ distribution = "replay", file = "delays.csv", column = "delay" }',
            "distribution `replay` needs the `unit`",
        ),
        (
            '{ distribution = "replay", file = "delays.csv", column = "delay", unit = "ms", then = "end" }',
            'write "repeat"',
        ),
        (
            '{ distribution = "replay", file = "delays.csv", column = "delay", unit = "ms", the = "last" }',
            "mean `then`",
        ),
        ('{ distribution = "replay", file = "holes.csv", column = "delay", unit = "ms" }', "holes.csv:3: delay is 'x'"),
        ('{ distribution = "replay", values = ["1 ms"], unit = "ms" }', "no parameter `unit` beside `values`"),
        ('{ distribution = "replay", values = ["-1 ms"] }', "negative"),
        ('{ distribution = "replay", values = [] }', "at least 1"),
        (
            '{ distribution = "uniform", low = { distribution = "replay", values = ["1 ms"] }, high = "9 ms" }',
            "cannot be replayed",
        ),
    ],
)
def test_replays_that_cannot_be(tmp_path: Path, distribution: str, message: str) -> None:
    for name, lines in {"delays": "1\n2", "holes": "1\nx"}.items():
        (tmp_path / f"{name}.csv").write_text(f"delay\n{lines}\n", "utf-8")
    with pytest.raises(ScenarioError, match=message):
        Scenario.load(write(tmp_path, distribution))


@pytest.mark.parametrize("line", ["interval", "lifetime"])
def test_what_publishers_draw_is_not_replayed(line: str) -> None:
    text = TEXT.replace("DISTRIBUTION", '"1 ms"').replace(
        'rate = "20 /s"', f'{line} = {{ distribution = "replay", values = ["1 s"] }}'
    )
    with pytest.raises(ScenarioError, match='distribution = "recorded" to draw from recorded values in any order'):
        Scenario.parse(text)


PACKETS = '{ distribution = "replay", packets = "link.down.gz", per = "3 kB" }'


def test_the_capacity_of_a_link_is_replayed(tmp_path: Path) -> None:
    """Packets of 1.5 kB at these milliseconds: every second one ends a block of 3 kB."""
    with gzip.open(tmp_path / "link.down.gz", "wt") as file:
        file.write("0\n0\n3\n5\n6\n100\n102\n")
    text = TEXT.replace("{ propagation = DISTRIBUTION }", f"{{ slowness = {PACKETS} }}")
    (tmp_path / "scenario.toml").write_text(text, "utf-8")
    found = Scenario.load(tmp_path / "scenario.toml").expand().topology.links[0].slowness
    assert isinstance(found, Replay)
    assert found.values == pytest.approx([0.001, 0.001, 0.032])


@pytest.mark.parametrize(
    ("lines", "distribution", "message"),
    [
        ("0\n5\n3\n9", PACKETS, r"link\.down\.gz:3: 3 comes after 5; sort the times"),
        ("0\nx\n3\n9", PACKETS, r"link\.down\.gz:2: the time is 'x', not a number"),
        ("0\n1", PACKETS, "write a smaller `per`"),
        ("0\n1\n2", PACKETS.replace("3 kB", "3 ms"), r"slowness\.per"),
        ("0\n1\n2", PACKETS.replace("link.", "none."), "relative to the scenario"),
        ("0\n1\n2", PACKETS.replace("per =", "pr ="), "did you mean `per`"),
    ],
)
def test_capacity_that_cannot_be(tmp_path: Path, lines: str, distribution: str, message: str) -> None:
    with gzip.open(tmp_path / "link.down.gz", "wt") as file:
        file.write(lines + "\n")
    text = TEXT.replace("{ propagation = DISTRIBUTION }", f"{{ slowness = {distribution} }}")
    (tmp_path / "scenario.toml").write_text(text, "utf-8")
    with pytest.raises(ScenarioError, match=message):
        Scenario.load(tmp_path / "scenario.toml")


def test_packets_are_a_slowness() -> None:
    with pytest.raises(ScenarioError, match="are a slowness; write them there"):
        Scenario.parse(TEXT.replace("DISTRIBUTION", PACKETS))


DATA = Path(os.environ.get("TIDINGS_DATA", Path(__file__).parents[3] / "shared" / "data"))
RECORDED_LINK = DATA / "lte_capacity" / "Verizon-LTE-short.down.gz"


@pytest.mark.skipif(not RECORDED_LINK.exists(), reason=f"{RECORDED_LINK} is absent; set TIDINGS_DATA to the directory")
def test_a_recorded_cellular_link() -> None:
    distribution = f'{{ distribution = "replay", packets = "{RECORDED_LINK}", per = "15 kB" }}'
    network = Scenario.parse(
        TEXT.replace("{ propagation = DISTRIBUTION }", f"{{ slowness = {distribution} }}")
    ).expand()
    with gzip.open(RECORDED_LINK, "rt") as file:
        times_ms = [float(line) for line in file]
    per_kb_s = (times_ms[-1] - times_ms[0]) / 1e3 / (1.5 * (len(times_ms) - 1))
    assert network.topology.links[0].slowness.mean() == pytest.approx(per_kb_s, rel=0.02)  # the last block is left out
    result = simulate(network)
    assert result.matched == result.on_time + result.late + result.lost + result.in_flight > 0
