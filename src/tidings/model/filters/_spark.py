"""The filter as a Spark SQL expression: the same truth values as `evaluate`, in ANSI mode too.

Spark is typed by column and follows other rules than this language: it casts a string to compare it with a number (and
fails on one that is no number), rounds whole numbers to doubles, treats NaN as equal to NaN, fails on a division by
zero and escapes with a backslash. So every attribute is seen through *views*, one per kind, of which at most one is not
NULL:

- `whole`   the value of an integral column
- `double`  the value of a float, double or decimal column; NaN is NULL there
- `string`, `boolean`

A comparison is written for the views that it can be true of; where none is left it is NULL. With a schema the views
are chosen here; without one, `typeof` chooses, which Spark folds to a constant when it plans the query.

The expression is built as one text, because a call into the JVM per literal would take minutes for long lists. It has
no parentheses but those it needs: Spark's parser turns a flat chain of ORs into a balanced tree, but takes time and
memory that grow much faster than the text where parentheses nest. Text that the settings of a session could read
differently (backslashes, quotes, ``${...}``) is written as hexadecimal.
"""

from collections.abc import Iterable, Sequence
from math import ceil, floor
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tidings.errors import ConfigurationError
from tidings.model.filters import _ast
from tidings.model.filters._evaluate import MIRRORED
from tidings.model.filters._like import parse_pattern
from tidings.model.filters._normal import merge_equalities
from tidings.model.filters._topics import topic_regex
from tidings.model.filters._tree import may_be_text
from tidings.model.filters._values import WHOLE_MAX, WHOLE_MIN, PlainValue, kind_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

UNKNOWN: Final = "CAST(NULL AS BOOLEAN)"
NO_DOUBLE: Final = "CAST(NULL AS DOUBLE)"
LIKE_ESCAPE: Final = "!"

_WHOLE_TYPES: Final = "('tinyint', 'smallint', 'int', 'bigint')"


class Views(NamedTuple):
    """An operand as SQL texts, one per kind; None where it cannot be of that kind."""

    whole: str | None = None
    double: str | None = None
    string: str | None = None
    boolean: str | None = None


def to_column(condition: _ast.Condition, schema: "StructType | None") -> "Column":
    """The condition as a Spark column."""
    try:
        from pyspark.sql import functions
    except ImportError:
        raise ConfigurationError(
            "Filter.to_spark needs PySpark, which is not installed: pip install 'tidings[spark]'"
        ) from None
    return functions.expr(spark_sql(condition, schema))


def spark_sql(condition: _ast.Condition, schema: "StructType | None" = None) -> str:
    """The condition as a Spark SQL text."""
    types = None if schema is None else {field.name: field.dataType for field in schema.fields}
    return _Writer(types).condition(merge_equalities(condition))


class _Writer:
    def __init__(self, types: "dict[str, DataType] | None") -> None:
        self._types = types
        self._views: dict[str, Views] = {}

    def condition(self, condition: _ast.Condition) -> str:
        match condition:
            case _ast.And(operands):
                return " AND ".join(list(map(self._in_conjunction, operands)))
            case _ast.Or(operands):
                return " OR ".join(list(map(self.condition, operands)))
            case _ast.Not(operand):
                inner = self.condition(operand)
                return f"NOT ({inner})" if isinstance(operand, (_ast.And, _ast.Or)) else f"NOT {inner}"
            case _ast.Comparison(op, left, right):
                return self._comparison(op, left, right)
            case _ast.Membership(attribute, values, negated):
                return _negated(_member(self.attribute(attribute.name), values), negated)
            case _ast.Like(attribute, pattern, escape, negated):
                text = self.attribute(attribute.name).string
                like = UNKNOWN if text is None else f"{text} LIKE {_like_pattern(pattern, escape)}"
                return _negated(like, negated)
            case _ast.Matches(attribute, pattern, negated):
                text = self.attribute(attribute.name).string
                regex = _string(rf"\A{topic_regex(pattern)}\z")
                return _negated(UNKNOWN if text is None else f"{text} RLIKE {regex}", negated)
            case _ast.IsNull(attribute, negated):
                return _negated(self._is_null(attribute.name), negated)
            case _ast.Constant(value):
                return "TRUE" if value else "FALSE"

    def _in_conjunction(self, condition: _ast.Condition) -> str:
        text = self.condition(condition)
        return f"({text})" if isinstance(condition, _ast.Or) else text

    def attribute(self, name: str) -> Views:
        if name not in self._views:
            column = _quoted(name)
            if self._types is None:
                self._views[name] = _dynamic_views(column)
            else:
                self._views[name] = _typed_views(column, self._types[name]) if name in self._types else Views()
        return self._views[name]

    def _is_null(self, name: str) -> str:
        column, views = _quoted(name), self.attribute(name)
        if self._types is None:  # A NaN counts as NULL, and only these two types have one.
            may_be_nan = f"typeof({column}) IN ('float', 'double')"
            return f"({column} IS NULL OR ({may_be_nan} AND {views.double} IS NULL))"
        if name not in self._types:
            return "TRUE"
        return f"{views.double or column} IS NULL"

    def _comparison(self, op: str, left: _ast.Operand, right: _ast.Operand) -> str:
        if isinstance(right, _ast.Value):
            return _against_literal(op, self._operand(left), right.value)
        if isinstance(left, _ast.Value):
            return _against_literal(MIRRORED[op], self._operand(right), left.value)
        return _between_views(op, self._operand(left), self._operand(right))

    def _operand(self, operand: _ast.Operand) -> Views:
        match operand:
            case _ast.Attribute(name):
                return self.attribute(name)
            case _ast.Value(value):
                return Views(double=_double(float(value)))
            case _ast.Arithmetic():
                computed = self._arithmetic(operand)
                # Once, at the top: a NaN inside stays a NaN.
                double = None if computed is None else f"nanvl({computed}, {NO_DOUBLE})"
                return Views(double=double, string=self._text(operand) if may_be_text(operand) else None)

    def _text(self, operand: _ast.Operand) -> str | None:
        """The operand as a string, or None if it cannot be one."""
        match operand:
            case _ast.Value(value):
                return _string(cast(str, value))
            case _ast.Attribute(name):
                return self.attribute(name).string
            case _ast.Arithmetic(_, left, right):
                a, b = self._text(left), self._text(right)
                return None if a is None or b is None else f"concat({a}, {b})"

    def _arithmetic(self, operand: _ast.Operand) -> str | None:
        """The operand as a double, or None if it has no number."""
        match operand:
            case _ast.Value(value):
                return None if isinstance(value, str) else _double(float(value))
            case _ast.Attribute(name):
                views = self.attribute(name)
                return _first([views.whole and f"CAST({views.whole} AS DOUBLE)", views.double])
            case _ast.Arithmetic(op, left, right):
                a, b = self._arithmetic(left), self._arithmetic(right)
                if a is None or b is None:
                    return None
                if op in "/%":
                    return f"{'try_divide' if op == '/' else 'try_mod'}({a}, {b})"
                if op == "*" and isinstance(left, _ast.Arithmetic) and left.op in "+-":
                    a = f"({a})"
                if isinstance(right, _ast.Arithmetic) and (op == "*" or right.op in "+-"):
                    b = f"({b})"
                return f"{a} {op} {b}"


def _typed_views(column: str, data_type: "DataType") -> Views:
    name = data_type.typeName()
    if name in ("byte", "short", "integer", "long"):
        return Views(whole=column)
    if name == "double":
        return Views(double=f"nanvl({column}, {NO_DOUBLE})")
    if name in ("float", "decimal"):
        return Views(double=f"nanvl(CAST({column} AS DOUBLE), {NO_DOUBLE})")
    if name in ("string", "char", "varchar"):
        return Views(string=f"CAST({column} AS STRING)")  # Drops a collation: strings compare by code point.
    return Views(boolean=column) if name == "boolean" else Views()


def _dynamic_views(column: str) -> Views:
    """The views of a column of any type: through a string, the one cast that Spark allows from everything."""
    kind, text = f"typeof({column})", f"CAST({column} AS STRING)"
    double = (
        f"CASE WHEN {kind} = 'double' OR {kind} LIKE 'decimal%' THEN try_cast({text} AS DOUBLE) "
        f"WHEN {kind} = 'float' THEN CAST(try_cast({text} AS FLOAT) AS DOUBLE) END"
    )
    return Views(
        whole=f"CASE WHEN {kind} IN {_WHOLE_TYPES} THEN try_cast({text} AS BIGINT) END",
        double=f"nanvl({double}, {NO_DOUBLE})",
        string=f"CASE WHEN {kind} LIKE 'string%' OR {kind} LIKE '%char(%' THEN {text} END",
        boolean=f"CASE WHEN {kind} = 'boolean' THEN try_cast({text} AS BOOLEAN) END",
    )


def _against_literal(op: str, views: Views, value: PlainValue) -> str:
    if isinstance(value, bool):
        return UNKNOWN if views.boolean is None else f"{views.boolean} {op} {str(value).upper()}"
    if isinstance(value, str):
        return UNKNOWN if views.string is None else f"{views.string} {op} {_string(value)}"
    return (
        _first(
            [
                views.whole and _whole_against(op, views.whole, value),
                views.double and _double_against(op, views.double, value),
            ]
        )
        or UNKNOWN
    )


def _whole_against(op: str, whole: str, value: float) -> str:
    """A whole number against any number, exactly: a fraction moves to the whole number next to it."""
    if op in ("=", "<>"):
        if value == floor(value) and WHOLE_MIN <= value <= WHOLE_MAX:
            return f"{whole} {op} {int(value)}L"
        return _if_present(whole, op == "<>")
    bound = floor(value) if op in ("<=", ">") else ceil(value)
    if bound > WHOLE_MAX:
        return _if_present(whole, op in ("<", "<="))
    if bound < WHOLE_MIN:
        return _if_present(whole, op in (">", ">="))
    return f"{whole} {op} {bound}L"


def _double_against(op: str, double: str, value: float) -> str:
    """A double against any number, exactly: a whole number that is no double lies next to one."""
    near = float(value)
    if near == value:
        return f"{double} {op} {_double(near)}"
    if op in ("=", "<>"):
        return _if_present(double, op == "<>")
    # No double lies between the value and `near`, so `near` is on the far side of the bound or inside it.
    if op in ("<", "<="):
        return f"{double} {'<' if near > value else '<='} {_double(near)}"
    return f"{double} {'>=' if near > value else '>'} {_double(near)}"


def _between_views(op: str, left: Views, right: Views) -> str:
    """One operand against another: whichever pair of views is not NULL decides."""
    pairs: list[str | None] = [
        left.whole and right.whole and f"{left.whole} {op} {right.whole}",
        left.double and right.double and f"{left.double} {op} {right.double}",
        left.whole and right.double and _whole_double(op, left.whole, right.double),
        left.double and right.whole and _whole_double(MIRRORED[op], right.whole, left.double),
        left.string and right.string and f"{left.string} {op} {right.string}",
    ]
    if op in ("=", "<>"):
        pairs.append(left.boolean and right.boolean and f"{left.boolean} {op} {right.boolean}")
    return _first(pairs) or UNKNOWN


def _whole_double(op: str, whole: str, double: str) -> str:
    """A whole number against a double without rounding it: by the double's floor, then by its fraction."""
    sign = (
        f"CASE WHEN {whole} IS NULL OR {double} IS NULL THEN NULL "
        f"WHEN {double} >= {_double(2.0**63)} THEN -1 WHEN {double} < {_double(-(2.0**63))} THEN 1 "
        f"WHEN {whole} < floor({double}) THEN -1 WHEN {whole} > floor({double}) THEN 1 "
        f"WHEN CAST(floor({double}) AS DOUBLE) < {double} THEN -1 ELSE 0 END"
    )
    return f"{sign} {op} 0"


def _member(views: Views, values: Sequence[PlainValue]) -> str:
    kind = kind_of(values[0])
    if kind == "boolean":
        return UNKNOWN if views.boolean is None else _in(views.boolean, [str(value).upper() for value in values])
    if kind == "string":
        return UNKNOWN if views.string is None else _in(views.string, map(_string, cast(Sequence[str], values)))
    numbers = cast(Sequence[float], values)
    wholes = [f"{int(v)}L" for v in numbers if WHOLE_MIN <= v <= WHOLE_MAX and v == floor(v)]
    doubles = [_double(float(v)) for v in numbers if float(v) == v and v != 0]
    return (
        _first(
            [
                views.whole and _in(views.whole, wholes),
                views.double and _in_doubles(views.double, doubles, zero=0 in numbers),
            ]
        )
        or UNKNOWN
    )


def _in(view: str, literals: Iterable[str]) -> str:
    listed = ", ".join(literals)
    return f"{view} IN ({listed})" if listed else _if_present(view, False)


def _in_doubles(view: str, literals: list[str], *, zero: bool) -> str:
    """Zero stands apart: a long list becomes a hash set in Spark, and there -0.0 is not 0.0."""
    others = _in(view, literals)
    return f"({others} OR {view} = 0D)" if zero else others


def _if_present(view: str, truth: bool) -> str:
    return f"CASE WHEN {view} IS NOT NULL THEN {str(truth).upper()} END"


def _first(texts: Iterable[str | None]) -> str | None:
    """The first of the texts that is not NULL for a row; of one text, the text itself."""
    present = [text for text in texts if text]
    return f"coalesce({', '.join(present)})" if len(present) > 1 else present[0] if present else None


def _negated(text: str, negated: bool) -> str:
    return f"NOT {text}" if negated else text


def _like_pattern(pattern: str, escape: str | None) -> str:
    special = ("%", "_", LIKE_ESCAPE)
    segments = (
        "".join("_" if c is None else LIKE_ESCAPE + c if c in special else c for c in segment)
        for segment in parse_pattern(pattern, escape)
    )
    return f"{_string('%'.join(segments))} ESCAPE '{LIKE_ESCAPE}'"


def _string(value: str) -> str:
    if "'" in value or "\\" in value or "${" in value:
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return f"'{value}'"


def _double(value: float) -> str:
    return f"{value!r}D"


def _quoted(name: str) -> str:
    if "${" in name:
        raise ConfigurationError(f"attribute {name!r} cannot be a Spark column name: Spark would substitute ${{...}}")
    return "`" + name.replace("`", "``") + "`"
