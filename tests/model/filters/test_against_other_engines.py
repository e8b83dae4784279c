"""The same random filters and events through five engines, which must agree on every truth value.

The predicate is compared with a tree walk written for clarity (numbers compared as decimals, patterns as regular
expressions), with the clauses that the matching index uses, with SQLite and with Spark SQL. Literals and events come
from one small pool, so ties on bounds, mismatched kinds, missing attributes and extreme numbers are frequent.
"""

import math
import re
import sqlite3
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tidings.model.filters import Clause, Filter, OneOf, Presence, Topic, Within
from tidings.model.filters import _ast as ast
from tidings.model.filters._sql import to_sql

Event = Mapping[str, Any]

NAMES = ["n", "m", "d", "s", "t", "b", "trade.symbol", "any `name`", 'q"x', "AND", "größe"]
NUMBERS = [0, 1, -1, 2, 7, -0.0, 0.5, 1.5, 2.0, 0.1, 5e-324, -5e-324, 1e308, -1e308, 1.7976931348623157e308]
NUMBERS += [sign * (2**53 + delta) for sign in (1, -1) for delta in (-1, 0, 1, 2)]
NUMBERS += [float(2**53), float(2**53 + 2), -float(2**53), 2**62, 2**62 + 1, float(2**62)]
NUMBERS += [2**63 - 1, -(2**63), 2**63 - 2, float(2**63), -float(2**63), 1e19, -1e300]
STRINGS = [
    "",
    "a",
    "A",
    "ab",
    "abc",
    "é",
    "名前",
    "%",
    "_",
    "a%b",
    "it's",
    "\\",
    "a\\",
    "😀",
    "\uffff",
    "z",
    "1",
    "TRUE",
]
STRINGS += ["${x}", "a\nb", '"', "!", "a/b", "/a", "a/", "$SYS/a", "a/b/c", "a/+", "a/\n(.*/é"]

numbers = st.sampled_from(NUMBERS) | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False)
strings = st.sampled_from(STRINGS) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3
)
values = numbers | strings | st.booleans()
attributes = st.sampled_from(NAMES).map(ast.Attribute)


def arithmetic(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(ast.Arithmetic, st.sampled_from("+-*/%"), children, children)


number_operands = st.recursive(attributes | numbers.map(ast.Value), arithmetic, max_leaves=4)
text_operands = st.recursive(
    attributes | strings.map(ast.Value),
    lambda inner: st.builds(ast.Arithmetic, st.just("+"), inner, inner),
    max_leaves=3,
)
operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def is_literal(comparison: ast.Comparison) -> bool:
    return isinstance(comparison.left, ast.Value) and isinstance(comparison.right, ast.Value)


@st.composite
def patterns(draw: st.DrawFn) -> ast.Like:
    escape = draw(st.sampled_from([None, "\\", "!", "é"]))
    pieces = st.sampled_from([c for c in "%_abé😀\n(.*!\\" if c != escape])
    if escape is not None:
        pieces |= st.sampled_from([escape + "%", escape + "_", escape + escape])
    pattern = "".join(draw(st.lists(pieces, max_size=5)))
    return ast.Like(draw(attributes), pattern, escape, draw(st.booleans()))


@st.composite
def topic_patterns(draw: st.DrawFn) -> ast.Matches:
    levels = st.sampled_from(["+", "a", "b", "", "$SYS", "é", "(.*", "it's", "a\nb", "\\", "${x}"])
    pattern = "/".join([*draw(st.lists(levels, max_size=3)), *draw(st.sampled_from([["#"], ["+"], ["a"]]))])
    return ast.Matches(draw(attributes), pattern, draw(st.booleans()))


memberships = st.one_of(
    *(st.lists(kind, min_size=1, max_size=14).map(tuple) for kind in (numbers, strings, st.booleans()))
)
leaves = st.one_of(
    st.builds(ast.Comparison, operators, attributes, numbers.map(ast.Value) | strings.map(ast.Value)),
    st.builds(ast.Comparison, operators, number_operands, number_operands).filter(lambda c: not is_literal(c)),
    st.builds(ast.Comparison, operators, text_operands, text_operands).filter(lambda c: not is_literal(c)),
    st.builds(ast.Comparison, operators, attributes, attributes),
    st.builds(ast.Comparison, st.sampled_from(["=", "<>"]), attributes, st.booleans().map(ast.Value)),
    st.builds(ast.Membership, attributes, memberships, st.booleans()),
    patterns(),
    topic_patterns(),
    st.builds(ast.IsNull, attributes, st.booleans()),
    st.builds(ast.Constant, st.booleans()),
)


def connected(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(node: Any, operands: list[Any]) -> Any:
        flat = [o for operand in operands for o in (operand.operands if isinstance(operand, node) else (operand,))]
        return node(tuple(flat))

    several = st.lists(children, min_size=2, max_size=4)
    return st.builds(ast.Not, children) | st.builds(build, st.sampled_from([ast.And, ast.Or]), several)


conditions = st.recursive(leaves, connected, max_leaves=8)
events = st.dictionaries(st.sampled_from(NAMES), values | st.none())


# A tree walk, with nothing shared with the predicate.


def walk(node: Any, event: Event) -> bool | None:
    match node:
        case ast.Constant(value):
            return value
        case ast.Not(operand):
            truth = walk(operand, event)
            return None if truth is None else not truth
        case ast.And(operands):
            truths = [walk(operand, event) for operand in operands]
            return False if False in truths else None if None in truths else True
        case ast.Or(operands):
            truths = [walk(operand, event) for operand in operands]
            return True if True in truths else None if None in truths else False
        case ast.IsNull(ast.Attribute(name), negated):
            return (event.get(name) is None) != negated
        case ast.Comparison(op, left, right):
            return compare(op, compute(left, event), compute(right, event))
        case ast.Membership(ast.Attribute(name), listed, negated):
            truths = [compare("=", event.get(name), value) for value in listed]
            return None if None in truths else any(truths) != negated
        case ast.Like(ast.Attribute(name), pattern, escape, negated):
            value = event.get(name)
            return like(value, pattern, escape) != negated if isinstance(value, str) else None
        case ast.Matches(ast.Attribute(name), pattern, negated):
            value = event.get(name)
            return topic_matches(pattern, value) != negated if isinstance(value, str) else None
    raise AssertionError(node)


def compare(op: str, a: Any, b: Any) -> bool | None:
    kinds = {"b" if isinstance(x, bool) else "s" if isinstance(x, str) else "n" for x in (a, b)}
    if a is None or b is None or len(kinds) == 2 or (kinds == {"b"} and op not in ("=", "<>")):
        return None
    if kinds == {"n"}:
        a, b = Decimal(a), Decimal(b)
    return {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def compute(node: Any, event: Event) -> Any:
    match node:
        case ast.Value(value):
            return value
        case ast.Attribute(name):
            return event.get(name)
        case ast.Arithmetic(op, left, right):
            a, b = compute(left, event), compute(right, event)
            if op == "+" and isinstance(a, str) and isinstance(b, str):
                return a + b
            if any(isinstance(x, (bool, str)) or x is None for x in (a, b)) or (op in "/%" and b == 0):
                return None
            a, b = float(a), float(b)
            if op == "%":
                return remainder(a, b)
            result = a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a / b
            return None if math.isnan(result) else result
    raise AssertionError(node)


def remainder(a: float, b: float) -> float | None:
    """What is left of `a`, exactly, with its sign."""
    if math.isinf(a):
        return None
    if math.isinf(b):
        return a
    left = abs(Fraction(a)) % abs(Fraction(b))
    return math.copysign(float(left), a)


def like(value: str, pattern: str, escape: str | None) -> bool:
    regex, rest = "", pattern
    while rest:
        if rest[0] == escape:
            regex, rest = regex + re.escape(rest[1]), rest[2:]
        else:
            regex, rest = regex + {"%": ".*", "_": "."}.get(rest[0], re.escape(rest[0])), rest[1:]
    return re.fullmatch(regex, value, re.DOTALL) is not None


def topic_matches(pattern: str, topic: str) -> bool:
    if topic.startswith("$") and pattern[0] in "+#":
        return False
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted, levels = wanted[:-1], levels[: len(wanted) - 1]
    return len(wanted) == len(levels) and all(a in ("+", b) for a, b in zip(wanted, levels, strict=True))


# The clauses, as an index judges them: numbers as doubles.


def clause_holds(clause: Clause, event: Event) -> bool:
    residual = clause.residual is None or walk(clause.residual, event) is True
    return residual and all(test_holds(test, event.get(test.attribute)) for test in clause.tests)


def test_holds(test: Any, value: Any) -> bool:
    kind = {bool: "boolean", str: "string", int: "number", float: "number"}.get(type(value))
    match test:
        case Within(_, low, high):
            return kind == "number" and low <= float(value) <= high
        case OneOf(_, wanted, listed, negated):
            return kind == wanted and ((float(value) if kind == "number" else value) in listed) != negated
        case Topic(_, pattern, negated):
            return kind == "string" and topic_matches(pattern, value) != negated
        case Presence(_, missing):
            return (value is None) == missing
    raise AssertionError(test)


test_holds.__test__ = False  # type: ignore[attr-defined]


# SQLite: dynamically typed, so kinds are guarded with typeof. A boolean travels as a blob, which nothing else is.


class SQLite:
    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("PRAGMA case_sensitive_like = ON")
        self.connection.create_function("remainder", 2, lambda a, b: remainder(a, b) if a is not None and b else None)
        self.connection.create_function("topic_matches", 2, topic_matches)  # SQLite has no such operator

    def evaluate(self, condition: Any, event: Event) -> bool | None:
        self.parameters: list[Any] = []
        # The event as columns first: the parameters of a query are numbered in order of appearance.
        text = self.condition(condition)
        columns = ", ".join(f"{self.bind(event.get(name))} AS c{i}" for i, name in enumerate(NAMES))
        (result,) = self.connection.execute(f"SELECT {text} FROM (SELECT {columns})", self.parameters).fetchone()
        return None if result is None else bool(result)

    def bind(self, value: Any) -> str:
        self.parameters.append(bytes([value]) if isinstance(value, bool) else value)
        return f"?{len(self.parameters)}"

    def condition(self, node: Any) -> str:
        match node:
            case ast.Constant(value):
                return str(int(value))
            case ast.Not(operand):
                return f"(NOT {self.condition(operand)})"
            case ast.And(operands):
                return "(" + " AND ".join(self.condition(operand) for operand in operands) + ")"
            case ast.Or(operands):
                return "(" + " OR ".join(self.condition(operand) for operand in operands) + ")"
            case ast.IsNull(attribute, negated):
                return f"({self.operand(attribute)} IS {'NOT ' if negated else ''}NULL)"
            case ast.Comparison(op, left, right):
                a, b = self.operand(left), self.operand(right)
                ordered = "" if op in ("=", "<>") else f" AND {kind(a)} <> 'blob'"
                return f"(CASE WHEN {kind(a)} = {kind(b)}{ordered} THEN {a} {op} {b} END)"
            case ast.Membership(attribute, listed, negated):
                a = self.operand(attribute)
                bound = [self.bind(value) for value in listed]
                inside = f"{a} {'NOT ' if negated else ''}IN ({', '.join(bound)})"
                return f"(CASE WHEN {kind(a)} = {kind(bound[0])} THEN {inside} END)"
            case ast.Like(attribute, pattern, escape, negated):
                a = self.operand(attribute)
                text = f"{a} {'NOT ' if negated else ''}LIKE {self.bind(pattern)}"
                text += "" if escape is None else f" ESCAPE {self.bind(escape)}"
                return f"(CASE WHEN {kind(a)} = 'text' THEN {text} END)"
            case ast.Matches(attribute, pattern, negated):
                a = self.operand(attribute)
                text = f"{'NOT ' if negated else ''}topic_matches({self.bind(pattern)}, {a})"
                return f"(CASE WHEN {kind(a)} = 'text' THEN {text} END)"
        raise AssertionError(node)

    def operand(self, node: Any) -> str:
        match node:
            case ast.Value(value):
                return self.bind(value)
            case ast.Attribute(name):
                return f"c{NAMES.index(name)}"
            case ast.Arithmetic(op, left, right):
                a, b = (
                    f"CASE WHEN {kind(x)} = 'number' THEN CAST({x} AS REAL) END"
                    for x in map(self.operand, (left, right))
                )
                if op == "%":
                    return f"remainder({a}, {b})"
                number = f"(({a}) {op} ({b}))"
                if op != "+":
                    return number
                text, other = self.operand(left), self.operand(right)
                both = f"{kind(text)} = 'text' AND {kind(other)} = 'text'"
                return f"(CASE WHEN {both} THEN {text} || {other} ELSE {number} END)"
        raise AssertionError(node)


def kind(text: str) -> str:
    return f"replace(replace(typeof({text}), 'integer', 'number'), 'real', 'number')"


# The tests.


@settings(max_examples=400, deadline=None)
@given(condition=conditions)
def test_canonical_text_parses_back(condition: Any) -> None:
    parsed = Filter.parse(to_sql(condition))
    assert repr(parsed.condition) == repr(condition)  # By repr: to Python, Value(True) == Value(1).


@settings(max_examples=600, deadline=None)
@given(condition=conditions, some=st.lists(events, min_size=1, max_size=8))
def test_predicate_agrees_with_a_tree_walk_and_with_the_clauses(condition: Any, some: list[Event]) -> None:
    subject = Filter.parse(to_sql(condition))
    for event in some:
        truth = walk(condition, event)
        assert subject.evaluate(event) is truth
        assert any(clause_holds(clause, event) for clause in subject.clauses) is (truth is True)


@settings(max_examples=300, deadline=None)
@given(condition=conditions, some=st.lists(events, min_size=1, max_size=4))
def test_predicate_agrees_with_sqlite(condition: Any, some: list[Event]) -> None:
    subject, sqlite = Filter.parse(to_sql(condition)), SQLite()
    for event in some:
        assert subject.evaluate(event) is sqlite.evaluate(condition, event), (subject.text, event)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), negated=st.booleans(), pool=st.sampled_from(["whole", "double", "text"]))
def test_huge_lists_agree_with_sqlite(seed: int, negated: bool, pool: str) -> None:
    make = {"whole": lambda k: 2**53 + k, "double": lambda k: k / 3, "text": lambda k: f"é{k}"}[pool]
    listed = tuple(make((seed + 7 * k) % 100_003) for k in range(2_000))
    condition = ast.Membership(ast.Attribute("n"), listed, negated)
    subject, sqlite = Filter.parse(to_sql(condition)), SQLite()
    for k in range(0, 100_003, 9_973):
        for value in (make(k), listed[k % 2_000]):
            event = {"n": value}
            truth = sqlite.evaluate(condition, event)
            assert subject.evaluate(event) is truth
            assert any(clause_holds(clause, event) for clause in subject.clauses) is (truth is True)


@settings(max_examples=300, deadline=None)
@given(f=conditions, g=conditions, some=st.lists(events, max_size=12))
def test_covering_is_sound(f: Any, g: Any, some: list[Event]) -> None:
    one, two = Filter.parse(to_sql(f)), Filter.parse(to_sql(g))
    if one.covers(two) is True:
        for event in some:
            assert one.matches(event) or not two.matches(event)
    assert one.covers(one) is True
    conjunction = Filter.parse(to_sql(ast.And((f, g)) if not isinstance(f, ast.And) else ast.And((*f.operands, g))))
    assert one.covers(conjunction) is not False


SPARK_TYPES = {"n": "bigint", "m": "int", "d": "double", "s": "string", "t": "float", "b": "boolean"}
SPARK_TYPES |= {"trade.symbol": "string", "any `name`": "double", 'q"x': "bigint", "AND": "boolean"}
# "größe" is left out of the table: with a schema it counts as missing.


def column_values(spark_type: str) -> st.SearchStrategy[Any]:
    whole = st.sampled_from([v for v in NUMBERS if isinstance(v, int)]) | st.integers(-3, 3)
    double = st.sampled_from([float(v) for v in NUMBERS]) | st.floats(allow_nan=False, allow_infinity=False)
    return (
        st.none()
        | {
            "bigint": whole,
            "int": st.integers(-3, 8) | st.sampled_from([2**31 - 1, -(2**31)]),
            "double": double,
            "float": st.sampled_from([0.0, -0.0, 0.5, 1.5, 2.0, float(2**53)])
            | st.floats(width=32, allow_nan=False, allow_infinity=False),
            "string": strings,
            "boolean": st.booleans(),
        }[spark_type]
    )


rows = st.fixed_dictionaries({name: column_values(spark_type) for name, spark_type in SPARK_TYPES.items()})


def reads_only_the_table(condition: Any) -> bool:
    return "größe" not in Filter.parse(to_sql(condition)).attributes


@pytest.mark.spark
# Each example is a whole Spark job, so failures are not shrunk: the assertion names the one filter and row at fault.
@settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    some=st.lists(conditions, min_size=25, max_size=25),
    untyped=st.lists(leaves.filter(reads_only_the_table), min_size=15, max_size=15),
    table=st.lists(rows, min_size=25, max_size=25),
)
def test_predicate_agrees_with_spark(spark: Any, some: list[Any], untyped: list[Any], table: list[Event]) -> None:
    from pyspark.sql.types import StructField, StructType, _parse_datatype_string

    fields = [StructField(name, _parse_datatype_string(kind)) for name, kind in SPARK_TYPES.items()]
    schema = StructType(fields)
    frame = spark.createDataFrame([tuple(row[name] for name in SPARK_TYPES) for row in table], schema)
    typed = [Filter.parse(to_sql(condition)) for condition in some]
    loose = [Filter.parse(to_sql(condition)) for condition in untyped]
    columns = [subject.to_spark(schema) for subject in typed] + [subject.to_spark() for subject in loose]
    answers = frame.select([column.alias(f"c{i}") for i, column in enumerate(columns)]).collect()
    for event, answer in zip(table, answers, strict=True):
        for subject, truth in zip(typed + loose, answer, strict=True):
            assert subject.evaluate(event) is truth, (subject.to_sql(), event)
