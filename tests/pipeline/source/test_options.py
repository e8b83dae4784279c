"""Options: what they become, and errors that name the option and the remedy."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql", reason="PySpark is not installed: pip install 'tidings[spark]'")

from tidings.errors import ConfigurationError
from tidings.pipeline.source._options import batch_options, default_spool, sink_options, stream_options

READ = {"address": "127.0.0.1:7001", "filter": "symbol = 'YHOO'", "name": "job"}


def test_a_stream_is_a_durable_subscriber_with_deadlines() -> None:
    given = READ | {"MAXDELAY": "2 s", "late": "500 ms", "price": "3", "maxEventsPerTrigger": "7", "spool": "/x"}
    found = stream_options(given | {"metadata": "publisher, _sequence", "address": "a:1, b:2"})
    assert found.connection["address"] == ["a:1", "b:2"]
    assert (found.connection["name"], found.connection["durable"]) == ("job", True)
    assert found.terms.asked == {"max_delay_s": 2.0, "late_s": 0.5, "price": 3.0}
    assert found.terms.metadata == ("_publisher", "_sequence")
    assert (found.spool, found.max_events) == (Path("/x"), 7)


def test_spools_of_different_names_are_different() -> None:
    assert default_spool("a/b") != default_spool("a_b")
    assert stream_options(READ).spool == default_spool("job")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": ""}, "option address is missing; give the broker's"),
        ({"filter": ""}, "option filter is missing"),
        ({"filter": "price >"}, "option filter: found the end"),
        ({"name": ""}, "option name is missing: the broker keeps events"),
        ({"maxDelay": "2"}, 'option maxDelay: .*write "2 s"'),
        ({"maxDelay": "-2 s"}, "option maxDelay is '-2 s', but must not be negative"),
        ({"maxEventsPerTrigger": "many"}, "option maxEventsPerTrigger is 'many'; write a whole number"),
        ({"price": "x"}, "option price is 'x'; write a number"),
        ({"metadata": "colour"}, "option metadata: there is no _colour; write all, or some of _publisher"),
        ({"mode": "strict"}, "option mode is 'strict'; write permissive or failfast"),
        ({"maxDeley": "2 s"}, "option maxDeley is not one of format.'tidings'. here; did you mean maxDelay?"),
        ({"lifetime": "2 s"}, "option lifetime is not one of"),
        ({"tokenFile": "/nowhere"}, "option tokenFile: /nowhere cannot be read"),
    ],
)
def test_errors_name_the_option_and_the_remedy(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        stream_options(READ | change)


def test_a_batch_ends_by_time_or_number() -> None:
    found = batch_options({"address": "a:1", "filter": "TRUE", "within": "3 s", "events": "5"})
    assert (found.within_s, found.events, found.connection.get("durable")) == (3.0, 5, None)
    assert batch_options({"address": "a:1", "filter": "TRUE"}).events is None
    with pytest.raises(ConfigurationError, match="option spool is not one of"):
        batch_options(READ | {"spool": "/x"})


def test_publishers_of_a_name_have_one_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker knows a name by its secret, and tasks come and go, on other machines too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    given = {"address": "a:1", "name": "feed", "lifetime": "5 s", "payload": "body"}
    first, second = sink_options(given), sink_options(given)
    assert first.connection["secret"] == second.connection["secret"] is not None
    assert (first.lifetime_s, first.payload) == (5.0, "body")
    assert sink_options({"address": "a:1"}).connection["secret"] is None
    with pytest.raises(ConfigurationError, match="option require is 'all'; write reachable"):
        sink_options(given | {"require": "all"})
