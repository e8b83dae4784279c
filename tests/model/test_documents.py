"""The line of every key: the scanner agrees with the TOML reader on what is there, and with the text on where."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.model.documents import Source
from tidings.model.documents._source import _Scanner

EXAMPLES_FOLDER = Path(__file__).parents[2] / "examples"

TEXT = '''# a comment = [with, "brackets"]
plain = 1
a.b = "dotted"  # [not.a.table]
"quoted key" = 'x = 1'
multi = """
[fake]
key = 1
"""
literal = \'\'\'
'quoted' [fake]\'\'\'
array = [
    1,      # one
    [2, 3],
    { p = 1, q = [4] },
]
date = 1979-05-27 07:32:00

[table.sub]
x = 5

[[items]]
name = "first"
[items.inner]
deep = true
[[items]]
name = "second"
[[items.parts]]
size = 1
[[items.parts]]
size = 2
'''

LINES = {
    ("plain",): 2,
    ("a", "b"): 3,
    ("quoted key",): 4,
    ("multi",): 5,
    ("literal",): 9,
    ("array",): 11,
    ("array", 0): 12,
    ("array", 1): 13,
    ("array", 1, 1): 13,
    ("array", 2, "q"): 14,
    ("array", 2, "q", 0): 14,
    ("date",): 16,
    ("table", "sub"): 18,
    ("table", "sub", "x"): 19,
    ("items", 0): 21,
    ("items", 0, "name"): 22,
    ("items", 0, "inner"): 23,
    ("items", 0, "inner", "deep"): 24,
    ("items", 1, "name"): 26,
    ("items", 1, "parts", 1, "size"): 30,
}


@pytest.mark.parametrize("path", LINES)
def test_lines(path):
    assert Source(TEXT, "t").line(path) == LINES[path]


def test_what_is_not_written_has_the_line_of_the_table_around_it():
    source = Source(TEXT, "t")
    assert source.line(("items", 1, "missing", 3)) == 25
    assert source.line(("nowhere",)) == 1
    assert str(source.root / "items" / 1 / "name") == "t:26: items[1].name"


def paths(value, path=()):
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from paths(inner, (*path, number))


@pytest.mark.parametrize("example", sorted(EXAMPLES_FOLDER.glob("*.toml")), ids=lambda path: path.name)
def test_every_key_of_the_examples_is_found_and_nothing_else(example):
    text = example.read_text("utf-8")
    found = _Scanner(text).scan()
    assert set(found) == set(paths(tomllib.loads(text)))
    for path, line in found.items():
        if isinstance(path[-1], str):
            assert path[-1] in text.splitlines()[line - 1]


VALUES = st.recursive(
    st.integers(0, 9).map(str)
    | st.sampled_from(['"a # b"', "'[x]'", '"\\" = {"', '"""\n[t]\nk = 1"""', "'''\n}'''", "true", "1979-05-27", '""']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[\n " + ", # c ]\n".join(items) + "\n]")
        | st.lists(st.tuples(st.sampled_from("abc"), inner), max_size=3, unique_by=lambda pair: pair[0]).map(
            lambda pairs: "{" + ", ".join(f"{key} = {value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4))
@settings(max_examples=200)
def test_any_text_that_the_reader_takes(top, members):
    text = "".join(f"k{number} = {value}\n" for number, value in enumerate(top))
    text += "".join(f"[[m]]\nv = {value}\n" for value in members)
    assert set(_Scanner(text).scan()) == set(paths(tomllib.loads(text)))
