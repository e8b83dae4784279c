"""Warnings about filters that rarely mean what was intended: strings in double quotes, numbers with leading zeros."""

import warnings

import pytest

from tidings.errors import FilterError, FilterWarning
from tidings.model import Filter, Scenario
from tidings.model.filters import filter_warnings

SCENARIO = """
duration = "1 min"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
[[publishers]]
name = "p"
at = "a"
rate = "5 /s"
attributes = { country = { values = ["UK", "FR"] }, "home country" = "UK" }
[[subscribers]]
name = "s"
at = "b"
count = 2
filter = 'FILTER'
"""


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ('country = "UK"', [10]),
        ('"UK" = country', [0]),
        ('country <> "UK" OR city = "UK"', [11, 26]),
        ('country = "UK" OR country = "FR"', [10, 28]),
        ('NOT (price > 5 AND name = "New York")', [26]),
        ('a BETWEEN "x" AND "y"', [10, 18]),
        ('country IN ("UK", "FR")', [12, 18]),
        ("country NOT IN ('UK', \"FR\")", [22]),
        ('"London" IN (city, country)', [0]),
        ("x = 010 AND y = 0x10 AND z IN (1, 008)", [4, 34]),
        ('x = 010 AND country = "UK"', [4, 22]),
        ('"any name" = "UK"', [13]),  # of two quoted names the second is meant as a string
    ],
)
def test_doubtful_places_are_found(text: str, positions: list[int]) -> None:
    assert [warning.position for warning in filter_warnings(Filter.parse(text))] == positions


@pytest.mark.parametrize(
    "text",
    [
        "country = 'UK'",
        "country = UK",
        "x = 0 AND y = 007 AND z = 0.10 AND s = '010' AND a010 = 100",
        'country = "UK" AND "UK" IS NOT NULL',  # named elsewhere: an attribute is meant
        'low < "high" AND high > 3',
        '"any name" = 5 AND "any name" < 7',
        "name = '\"UK\"'",
        '[country,=,"UK"]',  # in a triple it is a string
        'a + "b" > 3',
        'x = "x"',
    ],
)
def test_nothing_else_is_doubted(text: str) -> None:
    assert filter_warnings(Filter.parse(text)) == ()


def test_the_message_names_the_place_and_the_remedy() -> None:
    (warning,) = filter_warnings(Filter.parse('price > 1 AND country = "it\'s"'))
    assert str(warning) == (
        '"it\'s" is compared as an attribute, not as a string, and is named nowhere else (character 25 of the filter)\n'
        '  price > 1 AND country = "it\'s"\n'
        "                          ^\n"
        "Double quotes name an attribute; write a string in single quotes: 'it''s'."
    )
    assert warning.text == 'price > 1 AND country = "it\'s"'


def test_strict_parsing_makes_an_error_of_a_warning() -> None:
    with pytest.raises(FilterError, match="is compared as an attribute") as refused:
        Filter.parse('price > 1 AND country = "UK"', strict=True)
    assert refused.value.position == 24
    assert Filter.parse("country = 'UK'", strict=True) == Filter.parse("country = 'UK'")


def test_known_attributes_are_not_doubted() -> None:
    assert filter_warnings(Filter.parse('country = "UK"'), attributes={"UK"}) == ()


def test_filters_without_a_text_are_not_doubted() -> None:
    assert filter_warnings(Filter.all_of([("country", "=", '"UK"')])) == ()


def test_a_scenario_warns_with_file_line_and_key() -> None:
    scenario = Scenario.parse(SCENARIO.replace("FILTER", 'country = "UK" AND {number} > 0'), "mine.toml")
    with pytest.warns(FilterWarning, match=r'^mine.toml:13: subscribers\[0\].filter: "UK" is compared') as caught:
        network = scenario.expand()
    assert len(caught) == 1  # one text, whatever the number of clients
    assert caught[0].filename == __file__
    assert [str(warning) for warning in scenario.warnings(network)] == [str(caught[0].message)]


def test_a_scenario_knows_the_attributes_of_its_publishers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Scenario.parse(SCENARIO.replace("FILTER", 'country = "home country"')).expand()


def test_an_advertisement_is_looked_at_too() -> None:
    text = SCENARIO.replace("FILTER", "TRUE").replace(
        'rate = "5 /s"', 'rate = "5 /s"\nadvertisement = \'country = "UK"\''
    )
    with pytest.warns(FilterWarning, match=r"^<scenario>:8: publishers\[0\].advertisement: "):
        Scenario.parse(text).expand()
