"""The mapping file is decoded strictly, and every complaint has its line and a remedy."""

from pathlib import Path

import pytest

from tidings.errors import InputError, TidingsError
from tidings.pipeline.ingest import find_files, load_mapping

GOOD = """
[time]
unit = "ms"
origin = 2026-01-31T00:00:00Z

[publications]
files = "sends*.csv"
format = "csv"
columns = { event = "id", publisher = "producer", departure_ns = "at" }
attributes = { symbol = "string", price = { kind = "number", column = "px" } }

[deliveries]
files = "receives*.csv"
format = "csv"
columns = { event = "id", subscription = "consumer", arrived_ns = "at" }

[[subscribers]]
subscriber = "billing"
filter = "symbol = 'YHOO'"
max_delay = "250 ms"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mapping.toml"


def test_a_mapping_is_read(path: Path) -> None:
    path.write_text(GOOD)
    mapping = load_mapping(path)
    assert mapping.patterns == {"publications": ("sends*.csv", "csv"), "deliveries": ("receives*.csv", "csv")}
    assert mapping.is_whole
    assert mapping.given_tables == {"subscriptions"}
    assert mapping.times["deliveries"].origin_ns == 1_769_817_600 * 10**9
    assert mapping.tables["publications"].attribute_columns() == {
        "symbol": ("symbol", "string"),
        "price": ("px", "number"),
    }
    path.write_text(GOOD + "# changed")
    assert load_mapping(path).digest != mapping.digest


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('unit = "ms"', 'unit = "hour"', r":3: time.unit: 'hour' is not possible here"),
        ('unit = "ms"', "", r":2: time: `unit` is missing; write for example unit = \"ms\""),
        ("2026-01-31T00:00:00Z", '"yesterday"', r":4: time.origin: 'yesterday' is no moment; write it like"),
        ("2026-01-31T00:00:00Z", "2026-01-31", r":4: time.origin: a date alone is no moment"),
        ('format = "csv"', 'format = "xml"', r":8: publications.format: 'xml' is not possible here; write one of csv"),
        ("departure_ns =", "departed =", r":9: publications.columns.departed: publications has no field"),
        ('event = "id", publisher', "publisher", r"publications.columns: `sequence` is missing .* or event"),
        ("[publications]", "[[publications]]", r"publications: expected a table, got an array"),
        ("arrived_ns =", "delivered_ns =", r"deliveries.columns: `arrived_ns` is missing"),
        ('"string"', '"text"', r":10: publications.attributes.symbol: 'text' is not possible here"),
        ("symbol = 'YHOO'", "symbol = ", r":19: subscribers\[0\].filter: "),
        ('"250 ms"', '"-1 s"', r":20: subscribers\[0\].max_delay: '-1 s' is not possible: it must be above 0"),
        ('"250 ms"', "250", r":20: subscribers\[0\].max_delay: .*no unit"),
        ('"id", publisher', "[], publisher", r":9: publications.columns.event: must have at least 1 element"),
        (
            'event = "id", publisher',
            'sequence = ["topic", "offset"], publisher',
            r":9: publications.columns.sequence: is a number, .*publisher = .'topic', 'partition'".replace("'", '"'),
        ),
        (
            'departure_ns = "at"',
            'departure_ns = ["at", "on"]',
            r"columns.departure_ns: is one value, .* name one column",
        ),
        ("[deliveries]", "[delivery]", r"delivery: unknown key `delivery`; did you mean `deliveries`\?"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, message: str, path: Path) -> None:
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(TidingsError, match=message) as caught:
        load_mapping(path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("defaults = { broker = 5 }", r"deliveries.defaults.broker: 5 is no string"),
        ('defaults = { delivered_ns = "now" }', r"deliveries.defaults.delivered_ns: 'now' is no bigint"),
        ('defaults = { event = "x" }', r"deliveries.defaults.event: "),
        ('attributes = { x = "number" }', r"deliveries.attributes: only publications have attributes"),
    ],
)
def test_what_a_table_cannot_have_is_refused(addition: str, message: str, path: Path) -> None:
    path.write_text(GOOD.replace("\n[[subscribers]]", f"{addition}\n[[subscribers]]"))
    with pytest.raises(TidingsError, match=message):
        load_mapping(path)


def test_events_are_numbered_only_where_publications_have_their_ids(path: Path) -> None:
    path.write_text(GOOD.replace('event = "id", publisher', 'sequence = "id", publisher'))
    with pytest.raises(TidingsError, match=r"deliveries.columns.event: needs the event ids of publications"):
        load_mapping(path)


def test_a_duration_among_iso_times_needs_a_unit(path: Path) -> None:
    text = GOOD.replace('"ms"\n', '"iso"\n').replace('departure_ns = "at"', 'departure_ns = "at", lifetime_ns = "ttl"')
    path.write_text(text)
    with pytest.raises(TidingsError, match=r'lifetime_ns: is a duration, .* durations = "ms"'):
        load_mapping(path)
    path.write_text(text.replace('"iso"\n', '"iso"\ndurations = "s"\n'))
    assert load_mapping(path).times["publications"].duration_unit == "s"


def test_a_subscription_is_given_once(path: Path) -> None:
    path.write_text(GOOD + "\n[[subscribers]]\nsubscriber = 'billing'\nfilter = 'TRUE'\n")
    with pytest.raises(TidingsError, match=r"subscription 'billing' is there already"):
        load_mapping(path)


def test_a_file_that_is_no_mapping_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        load_mapping(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        load_mapping(path)


def test_files_are_found_by_pattern_and_must_have_the_columns(path: Path, tmp_path: Path) -> None:
    path.write_text(GOOD)
    mapping = load_mapping(path)
    trace = tmp_path / "logs"
    trace.mkdir()
    with pytest.raises(InputError, match="no files of table 'publications'"):
        find_files([trace], mapping=mapping)
    (trace / "sends-1.csv").write_text("id,producer,at,symbol,px,more\r\n1,p,5,YHOO,1.5,x\r\n")
    (trace / "sends-2.csv").write_text("")
    (trace / "notes.csv").write_text("not named in the mapping")
    files = find_files([trace], mapping=mapping)
    assert [(file.table, file.format, file.columns) for file in files] == [
        ("publications", "csv", ("id", "producer", "at", "symbol", "px", "more")),
        ("publications", "csv", None),
    ]
    assert files[1].fault == "empty: there is no header line"
    (trace / "receives.csv").write_text("id,at\n")
    with pytest.raises(InputError, match=r"receives.csv: has no column 'consumer', which .*mapping.toml names; it has"):
        find_files([trace], mapping=mapping)
