"""R from logs of hosts whose clocks differ: against the truth that the logs were made from.

By the engine that is quick to start, and by Spark with the tests that take minutes; that both correct clocks alike,
table by table, is the subject of test_engines.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.logs import BASE_NS, CONSUMERS, WRITERS, Traffic, traffic

from tidings.errors import InputError
from tidings.pipeline import PipelineOptions, TooManyBadRows, run_in_process, run_pipeline
from tidings.pipeline.ingest import find_files, load_mapping, read_table, with_clocks

EXAMPLES = Path(__file__).parents[2] / "examples" / "foreign"
MS = 1_000_000
AHEAD = {"edge": 0, "core": 250_000_000, "cloud": -120_000_000}


def run(spark: Any, folder: Path, mapping: Path, **options: Any) -> Any:
    """By Spark if there is a session, else in this process."""
    asked = PipelineOptions(mapping=mapping, **options)
    if spark is None:
        return run_in_process([folder / "logs"], folder / "out", asked)
    return run_pipeline(spark, [folder / "logs"], folder / "out", asked)


def check_against(truth: Traffic, result: Any) -> None:
    """What is sure is sure: the truth is always between the two ends, of clocks and of what was on time."""
    assert result.bad == 0
    for host, clock in result.clocks.items():
        base = next(name for name, each in result.clocks.items() if each["error_s"] <= 0.001 and each["ahead_s"] == 0)
        ahead_s = (truth.ahead_ns[host] - truth.ahead_ns[base]) / 1e9
        assert abs(clock["ahead_s"] - ahead_s) <= clock["error_s"]
        # Of 200 messages in each direction, the quickest take 2 ms and at most some tenths more.
        assert clock["error_s"] < 0.005
    for consumer in CONSUMERS:
        score = result.subscribers[consumer]
        assert score.matched == len(truth.sent)
        assert score.on_time_least <= truth.on_time(consumer) <= score.on_time_most
        assert abs(score.on_time - truth.on_time(consumer)) <= 0.03 * score.matched
        share = truth.on_time(consumer) / len(truth.sent)
        assert score.reliability_low <= share <= score.reliability_high


@pytest.mark.parametrize("system", WRITERS)
def test_two_topics_and_three_hosts(system: str, tmp_path: Path) -> None:
    check_three_hosts(system, None, tmp_path)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("system", WRITERS)
def test_two_topics_and_three_hosts_on_spark(system: str, spark: Any, tmp_path: Path) -> None:
    check_three_hosts(system, spark, tmp_path)


def check_three_hosts(system: str, spark: Any, tmp_path: Path) -> None:
    truth = traffic(events=240, **AHEAD)
    WRITERS[system](truth, tmp_path / "logs")
    check_against(truth, run(spark, tmp_path, EXAMPLES / f"{system}.toml"))


def test_the_recipe_for_kafka_without_the_topic(tmp_path: Path) -> None:
    """What the guide used to say: the partition alone is the publisher. Half of the rows are those of other topics."""
    truth = traffic(events=240)
    WRITERS["kafka"](truth, tmp_path / "logs")
    text = (
        (EXAMPLES / "kafka.toml").read_text().replace('["topic", "partition"]', '"partition"').replace("[clocks]", "")
    )
    (tmp_path / "mapping.toml").write_text(text)
    with pytest.raises(TooManyBadRows, match=r"duplicate") as caught:
        run(None, tmp_path, tmp_path / "mapping.toml")
    rows = len(truth.sent) + len(truth.received)
    assert caught.value.result.quarantined["duplicate"] >= 0.4 * rows
    assert caught.value.result.matched == len(truth.sent) // 2 * len(CONSUMERS)


def test_a_tolerance_accepts_what_clocks_correct(tmp_path: Path) -> None:
    check_tolerance(None, tmp_path)


@pytest.mark.full
@pytest.mark.spark
def test_a_tolerance_accepts_what_clocks_correct_on_spark(spark: Any, tmp_path: Path) -> None:
    check_tolerance(spark, tmp_path)


def check_tolerance(spark: Any, tmp_path: Path) -> None:
    """A consumer's clock that is behind makes everything seem on time; declared or estimated, R is what it was."""
    truth = traffic(events=160, core=-100_000_000)
    WRITERS["kafka"](truth, tmp_path / "logs")
    text = (EXAMPLES / "kafka.toml").read_text()
    share = truth.on_time("billing") / len(truth.sent)
    assert share < 0.9
    tolerant = tmp_path / "tolerant.toml"
    tolerant.write_text(text.replace("[clocks]", "#"))
    seen = run(spark, tmp_path, tolerant, clock_tolerance_ns=150_000_000).subscribers["billing"]
    mine = (each for each in truth.received if each.consumer == "billing")
    seem = [truth.shown_ns(each) // MS - truth.shown_ns(each.sent) // MS for each in mine]
    assert seen.on_time_least == seen.on_time == seen.on_time_most == sum(delay_ms < 30 for delay_ms in seem)
    assert seen.on_time_reliability > share + 0.05
    declared = tmp_path / "declared.toml"
    hosts = 'hosts = { core = { ahead = "-101 ms", error = "2 ms" }, edge = "0 ms", cloud = "0 s" }'
    declared.write_text(text.replace("[clocks]", f"[clocks]\nestimate = false\n{hosts}"))
    score = run(spark, tmp_path, declared).subscribers["billing"]
    assert score.on_time_least <= truth.on_time("billing") <= score.on_time_most
    assert score.on_time_most - score.on_time_least < 0.2 * score.matched
    assert score.reliability_low <= share <= score.reliability_high


@pytest.mark.spark
def test_a_host_that_only_listens_has_to_be_declared(spark: Any, tmp_path: Path) -> None:
    truth = traffic(events=40)
    quiet = Traffic(
        sent=truth.sent,
        received=[each for each in truth.received if each.consumer == "billing" and each.sent.host != "core"],
        ahead_ns=truth.ahead_ns,
    )
    WRITERS["kafka"](quiet, tmp_path / "logs")
    with pytest.raises(
        InputError, match=r"clocks of .* cannot be estimated: .* in both directions; declare them under"
    ):
        run(spark, tmp_path, EXAMPLES / "kafka.toml")


@pytest.mark.spark
def test_drift_is_found_and_corrected(spark: Any, tmp_path: Path) -> None:
    """20 minutes at 80 and -45 parts in a million: 150 ms that no constant explains. The speeds are told by the
    quickest messages of the two ends, which differ by some milliseconds: three parts in a million over this time."""
    steady = traffic(events=240, every_ns=5_000_000_000, core=50_000_000)
    truth = replace(steady, drift_ppm={"edge": 80.0, "cloud": -45.0})
    WRITERS["nats"](truth, tmp_path / "logs")
    path = tmp_path / "mapping.toml"
    text = (EXAMPLES / "nats.toml").read_text()
    path.write_text(text.replace("[clocks]", '[clocks]\nreference = "core"\ndrift = true'))
    mapping = load_mapping(path)
    files = find_files([tmp_path / "logs"], mapping=mapping)
    found = with_clocks(spark, files, mapping)
    assert found is not None
    assert found.corrections is not None
    rates = dict(zip(found.corrections.hosts, (found.corrections.rate * 1e6).tolist(), strict=True))
    assert rates == pytest.approx({"core": 0.0, "edge": 80.0, "cloud": -45.0}, abs=3.0)
    read = read_table(spark, "publications", files, mapping=found)
    times = sorted(row.departure_ns - BASE_NS - truth.ahead_ns["core"] for row in read.collect())
    true = sorted(each.at_ns for each in truth.sent)
    slack_ns = round(3e-6 * true[-1]) + int(found.corrections.error_ns.max())
    assert max(abs(a - b) for a, b in zip(times, true, strict=True)) <= slack_ns


@pytest.mark.spark
def test_each_end_of_a_hop_has_its_own_clock(spark: Any, tmp_path: Path) -> None:
    """Broker b is ahead of a by 9 ms, by what the two send each other; the publisher by 4 ms, as is declared."""
    (tmp_path / "sends.csv").write_text("p,n,at\np,0,5\n")
    (tmp_path / "hops.csv").write_text("p,n,from,to,sent,got\np,0,,a,5,7\np,0,a,b,10,22\np,0,b,a,30,24\n")
    path = tmp_path / "mapping.toml"
    path.write_text("""[time]
    unit = "ms"
    [publications]
    files = "sends.csv"
    format = "csv"
    columns = { publisher = "p", sequence = "n", departure_ns = "at" }
    [hops]
    files = "hops.csv"
    format = "csv"
    [hops.columns]
    publisher = "p"
    sequence = "n"
    source = "from"
    target = "to"
    sent_ns = "sent"
    received_ns = "got"
    [clocks]
    reference = "a"
    hosts = { p = { ahead = "4 ms" } }
    """)
    mapping = load_mapping(path)
    files = find_files([tmp_path], mapping=mapping, needed=["publications"])
    found = with_clocks(spark, files, mapping)
    hops = read_table(spark, "hops", files, mapping=found).orderBy("sent_ns").collect()
    assert [(row.enqueued_ns // MS, row.sent_ns // MS, row.received_ns // MS) for row in hops] == [
        (1, 1, 7),
        (10, 10, 13),
        (21, 21, 24),
    ]
    (sent,) = read_table(spark, "publications", files, mapping=found).collect()
    assert (sent.departure_ns, sent.clock) == (1 * MS, 2)
