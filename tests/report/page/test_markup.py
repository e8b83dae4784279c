"""Markup as a value: data is escaped, wherever it stands."""

from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidings.model.units import percent, shown_time
from tidings.report.page._charts import ticks
from tidings.report.page._document import _json
from tidings.report.page._markup import joined, tag

# What HTML cannot express: NUL, lone surrogates; carriage returns become line feeds.
TEXT = st.text(st.characters(exclude_characters="\x00\r", exclude_categories=["Cs"]))


class Read(HTMLParser):
    """What a parser makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, Any]] = []
        self.text = ""

    def handle_starttag(self, name: str, attributes: Any) -> None:
        self.tags.append((name, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(TEXT, TEXT)
def test_whatever_is_put_in_comes_out_as_text(inside: str, value: str) -> None:
    reader = Read()
    reader.feed(tag("p", tag("b", inside), title=value))
    reader.close()
    assert reader.tags == [("p", {"title": value}), ("b", {})]
    assert reader.text == inside


def test_attributes() -> None:
    made = tag("th", "x", class_="a", aria_label="b", data_key=1.0, hidden=True, id=None, open=False)
    assert made == '<th class="a" aria-label="b" data-key="1" hidden>x</th>'
    assert joined("<", tag("br"), None, 3) == "&lt;<br>3"


@given(st.recursive(TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8))
def test_json_cannot_end_its_element(value: Any) -> None:
    import json

    text = _json(value)
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == value


def test_shares_are_never_rounded_to_all_or_nothing() -> None:
    assert [percent(share) for share in (1.0, 0.99999, 0.5, 0.0001, 0.0, None)] == [
        "100.0 %", ">99.9 %", "50.0 %", "<0.1 %", "0.0 %", "–",
    ]  # fmt: skip


def test_times_are_rounded_before_their_unit_is_chosen() -> None:
    shown = [shown_time(value) for value in (0.0, 3e-8, 0.00099999, 0.0123456, 59.99, 7200.0)]
    assert shown == ["0", "<1 µs", "1 ms", "12.3 ms", "1 min", "2 h"]


@given(st.floats(1e-9, 1e12))
def test_ticks_are_few_and_reach_far(most: float) -> None:
    found = ticks(most)
    assert found[0] == 0.0
    assert 2 <= len(found) <= 7
    assert most * 0.5 < found[-1] <= most * (1 + 1e-9)
