"""The rules that can be broken are a fixed set, each with its remedy; the reports of them are bounded."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.conftest import SECOND, Wire

import tidings
from tidings.protocol import Heard, wire
from tidings.protocol._effects import Remark
from tidings.protocol._errors import OTHER, REMEDIES, PeerError, known_code
from tidings.protocol._machine import MAX_REMARKS, REMARK_NS

ERRORS = {"PeerError", "DeniedError", "MistrustError", "RequestError"}


def test_every_rule_that_the_code_names_is_one_of_the_set() -> None:
    named: dict[str, Path] = {}
    for path in Path(tidings.__file__).parent.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            if name in ERRORS and call.args and isinstance(call.args[0], ast.Constant):
                named[str(call.args[0].value)] = path
    assert len(named) > 20
    assert set(named) <= set(REMEDIES), {code: named[code] for code in named.keys() - REMEDIES.keys()}


@given(st.text())
def test_a_code_is_known_or_other(code: str) -> None:
    assert known_code(code) in REMEDIES
    assert known_code(code) == (code if code in REMEDIES else OTHER)


def test_a_rule_that_does_not_exist_cannot_be_broken() -> None:
    with pytest.raises(AssertionError):
        PeerError("thought up", "")


def remarks(net: Wire, name: str, event: str) -> list[Remark]:
    found = [effect for who, effect in net.effects if who == name and isinstance(effect, Remark)]
    return [effect for effect in found if effect.event == event]


def test_codes_that_are_thought_up_count_as_one(row: Wire) -> None:
    """Random codes made the metrics 20 MB long, and `tidings status` failed."""
    before = len(row.machines["a"].counts)
    for number in range(500):
        row.do("a", row.machines["a"].receive("p", wire.encode(wire.Error(f"code-{number}", "?")), row.now_ns))
    assert row.machines["a"].counts["told other"] == 500
    assert len(row.machines["a"].counts) == before + 1


def test_a_refusal_is_reported_with_cause_and_remedy_and_not_again_at_once(row: Wire) -> None:
    for _ in range(30):
        row.call("p", "publish", {"x": -1})
        row.settle()
    (reported,) = remarks(row, "a", "refused")
    assert reported.facts["code"] == "not-advertised"
    assert (reported.facts["peer"], reported.facts["kind"]) == ("p", "publish")
    assert "advertise it first" in reported.facts["why"]
    assert reported.facts["remedy"] == REMEDIES["not-advertised"]
    row.pass_time(REMARK_NS + SECOND)
    row.call("p", "publish", {"x": -1})
    *_, again = remarks(row, "a", "refused")
    assert again.facts["times_before"] >= 29


def test_what_is_remembered_of_remarks_is_bounded(wire: Wire) -> None:
    wire.chain("a")
    machine = wire.machines["a"]
    for number in range(3 * MAX_REMARKS):
        machine._remark("something", str(number))
    assert len(machine._remarks) <= MAX_REMARKS


def test_a_neighbour_is_lost_for_a_reason(row: Wire) -> None:
    row.cut("a", "b")
    row.pass_time(20 * SECOND)
    lost = [effect for who, effect in row.effects if who == "a" and isinstance(effect, Heard) and not effect.is_up]
    assert lost
    assert all("been silent for" in effect.why for effect in lost)


def test_a_client_that_is_forgotten_is_named(row: Wire) -> None:
    row.cut("s", "c")
    row.pass_time(row.machines["c"].settings.client_timeout_ns + 10 * SECOND)  # type: ignore[attr-defined]
    (reported,) = remarks(row, "c", "client forgotten")
    assert (reported.facts["peer"], reported.facts["subscriptions"]) == ("s", 1)


def test_the_reference_has_all_rules() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "protocol.md").read_text("utf-8")
    for code, remedy in REMEDIES.items():
        assert f"| `{code}` | {remedy} |" in page
