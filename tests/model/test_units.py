import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.model.units import format_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("250 ms", "time", 0.25),
        ("2 min", "time", 120.0),
        ("0.1 ms", "time", 0.0001),
        ("3us", "time", 3e-6),
        ("3 µs", "time", 3e-6),
        ("1 d", "time", 86400.0),
        ("50 kB", "size", 50.0),
        ("64 B", "size", 0.064),
        ("15 /min", "rate", 0.25),
        ("40 ms/kB", "slowness", 0.04),
        ("1 s/MB", "slowness", 0.001),
        ("100 Mbit/s", "bandwidth", 12500.0),
        ("120 km", "length", 120.0),
        ("1e3 s", "time", 1000.0),
        ("1_000 s", "time", 1000.0),
        ("-5 s", "time", -5.0),
    ],
)
def test_quantities_in_base_units(text, dimension, value):
    assert parse_quantity(text, dimension) == value


@pytest.mark.parametrize(
    ("written", "dimension", "message"),
    [
        ("5 kg", "time", "'5 kg': unknown unit 'kg'; write a time in one of d, h, min, s, ms, us, ns"),
        ("5 kB", "time", "'kB' is a unit of size, but a time is expected here; write it like \"250 ms\""),
        ("5 s", "size", "'s' is a unit of time, but a size is expected here; write it like \"50 kB\""),
        (5, "time", '5 has no unit, but a time is expected here; write "5 s" if that is what you mean'),
        (2.5, "rate", '2.5 has no unit, but a rate is expected here; write "2.5 /s" if that is what you mean'),
        ("5", "size", "'5' has no unit, but a size is expected here; write \"5 kB\" if that is what you mean"),
        ("5 kb", "size", "unknown unit 'kb'; did you mean 'kB'?"),
        ("fast", "rate", "'fast' is not a rate; write it like \"15 /min\""),
        (True, "time", 'expected a time, got a boolean; write it like "250 ms"'),
        ([1], "time", 'expected a time, got an array; write it like "250 ms"'),
        ("1e999 s", "time", "'1e999 s' is not a time"),
        ("1e999999999 s", "time", "'1e999999999 s' is not a time"),
        ("_ s", "time", "'_ s' is not a time"),
    ],
)
def test_what_is_refused_and_what_to_write(written, dimension, message):
    with pytest.raises(InputError) as error:
        parse_quantity(written, dimension)
    assert message in str(error.value)


@given(st.floats(1e-9, 1e9), st.sampled_from(["time", "size", "rate", "slowness", "bandwidth", "length"]))
def test_formatted_quantities_read_back(value, dimension):
    assert parse_quantity(format_quantity(value, dimension, digits=17), dimension) == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [(0.25, "time", "250 ms"), (0.0, "time", "0 s"), (90.0, "time", "1.5 min"), (0.25, "rate", "15 /min")],
)
def test_quantities_for_people(value, dimension, text):
    assert format_quantity(value, dimension) == text
