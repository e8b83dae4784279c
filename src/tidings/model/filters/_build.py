"""From tokens to the syntax tree, while the parser runs: one method per rule and terminal of `_grammar.lark`.

Every method returns a `Part`: the node, what kind of thing it is, how deep it is and where it stands in the text. The
kinds decide what the grammar leaves open (is this parenthesis a condition or an operand?) and refuse what can never
make sense (``'a' + 1``). Conjunctions and disjunctions are flattened, so a chain of fifty thousand ORs is one node of
depth 1; everything else that nests is counted, and the bound holds before anything has to recurse over the tree.
"""

from collections.abc import Sequence
from math import isinf
from typing import Final, cast

from lark import Token

from tidings.model.filters import _ast
from tidings.model.filters._like import parse_pattern
from tidings.model.filters._topics import pattern_problem
from tidings.model.filters._tree import ArithmeticOperator, Operator
from tidings.model.filters._values import WHOLE_MAX, PlainValue, kind_of

MAX_DEPTH: Final = 200
"""How deep conditions, arithmetic and parentheses may nest."""

OPERATORS: Final[dict[str, Operator]] = {
    "=": "=",
    "<>": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "!=": "<>",
}
ALIASES: Final[dict[str, Operator]] = {"eq": "=", "neq": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

OF_ANY_KIND: Final = ("attribute", "value")
"""Parts whose kind only the event decides."""

NULL_REMEDY: Final = "NULL equals nothing, not even NULL: write `attribute IS NULL` or `attribute IS NOT NULL`."


class MalformedError(Exception):
    """Raised when tokens make no sense together; the parser, which has the text, turns it into a FilterError."""

    def __init__(self, problem: str, position: int, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.position = position
        self.remedy = remedy


_WHOLE_PROBLEM = "a whole number must fit into 64 bits"
_WHOLE_REMEDY = "Write it with a point or an exponent to compare as a double: 1e19."


class Part:
    """A piece of the tree under construction.

    Kinds: number, string, boolean, attribute, value (a sum of attributes: of numbers or of strings), null, condition,
    pattern.
    """

    __slots__ = ("depth", "kind", "node", "position")

    def __init__(self, node: object, kind: str, position: int, depth: int = 0) -> None:
        check_depth(depth, position)
        self.node = node
        self.kind = kind
        self.position = position
        self.depth = depth


def check_depth(depth: int, position: int) -> None:
    if depth > MAX_DEPTH:
        remedy = "Take out needless parentheses, NOTs and signs; AND and OR chains of any length are one level."
        raise MalformedError(f"the filter nests deeper than {MAX_DEPTH} levels", position, remedy)


def unquoted(written: str) -> str:
    """The attribute that a name in double quotes means."""
    return written[1:-1].replace('""', '"')


class Builder:
    """The callbacks of the parser. It keeps no state, so one parser serves every thread."""

    # Terminals (keywords come as rules of their own: lark calls back only for terminals that it spells itself).

    def NAME(self, token: Token) -> Part:  # noqa: N802 (named after the terminal)
        return Part(_ast.Attribute(str(token)), "attribute", _at(token))

    def name(self, tokens: Sequence[Token]) -> Part:
        return self.NAME(tokens[0])

    def QUOTED(self, token: Token) -> Part:  # noqa: N802
        name = unquoted(token)
        if not name:
            raise MalformedError('"" is not an attribute name', _at(token), "Write a string in single quotes: ''.")
        return Part(_ast.Attribute(name), "attribute", _at(token))

    def NUMBER(self, token: Token) -> Part:  # noqa: N802
        try:
            return Part(_ast.Value(number_of(token)), "number", _at(token))
        except OverflowError as error:
            problem, remedy = error.args
            raise MalformedError(problem, _at(token), remedy) from None

    def STRING(self, token: Token) -> Part:  # noqa: N802
        return Part(_ast.Value(string_of(token)), "string", _at(token))

    def true(self, tokens: Sequence[Token]) -> Part:
        return Part(_ast.Value(True), "boolean", _at(tokens[0]))

    def false(self, tokens: Sequence[Token]) -> Part:
        return Part(_ast.Value(False), "boolean", _at(tokens[0]))

    def null(self, tokens: Sequence[Token]) -> Part:
        return Part(None, "null", _at(tokens[0]))

    # Conditions of conditions.

    def start(self, parts: Sequence[Part]) -> _ast.Condition:
        return _condition(parts[0])

    def any_of(self, parts: Sequence[Part]) -> Part:
        return _flat(_ast.Or, parts)

    def all_of(self, parts: Sequence[Part]) -> Part:
        return _flat(_ast.And, parts)

    def negated(self, parts: Sequence[Token | Part]) -> Part:
        token, part = cast(tuple[Token, Part], parts)
        return Part(_ast.Not(_condition(part)), "condition", _at(token), part.depth + 1)

    # Predicates.

    def comparison(self, parts: Sequence[Part | Token]) -> Part:
        left, op, right = cast(tuple[Part, Token, Part], parts)
        return _comparison(OPERATORS[op], left, right, _at(op))

    def between(self, parts: Sequence[Part]) -> Part:
        value, low, high = parts
        return _flat(
            _ast.And, [_comparison(">=", value, low, low.position), _comparison("<=", value, high, high.position)]
        )

    def not_between(self, parts: Sequence[Part | Token]) -> Part:
        value, _, low, high = cast(tuple[Part, Token, Part, Part], parts)
        return _flat(
            _ast.Or, [_comparison("<", value, low, low.position), _comparison(">", value, high, high.position)]
        )

    def member(self, parts: Sequence[Part]) -> Part:
        return _membership(parts[0], parts[1:], negated=False)

    def not_member(self, parts: Sequence[Part]) -> Part:
        return _membership(parts[0], parts[2:], negated=True)

    def like(self, parts: Sequence[Part]) -> Part:
        return _like(parts[0], parts[1], negated=False)

    def not_like(self, parts: Sequence[Part]) -> Part:
        return _like(parts[0], parts[2], negated=True)

    def matches(self, parts: Sequence[Part]) -> Part:
        return _matches(parts[0], parts[-1], negated=False)

    def not_matches(self, parts: Sequence[Part]) -> Part:
        return _matches(parts[0], parts[-1], negated=True)

    def is_null(self, parts: Sequence[Part]) -> Part:
        return Part(_ast.IsNull(_attribute(parts[0], "IS NULL")), "condition", parts[0].position)

    def is_not_null(self, parts: Sequence[Part]) -> Part:
        return Part(_ast.IsNull(_attribute(parts[0], "IS NOT NULL"), negated=True), "condition", parts[0].position)

    def pattern(self, parts: Sequence[Part]) -> Part:
        pattern, escape = _text(parts[0]), None
        if len(parts) == 2:
            escape = _text(parts[1])
            if len(escape) != 1:
                problem = f"ESCAPE takes one character, found {len(escape)}"
                raise MalformedError(problem, parts[1].position, r"Write for example LIKE '100\%%' ESCAPE '\'.")
        try:
            parse_pattern(pattern, escape)
        except ValueError as error:
            remedy = f"Double the escape character to mean itself: {escape}{escape}."
            raise MalformedError(str(error), parts[0].position, remedy) from None
        return Part((pattern, escape), "pattern", parts[0].position)

    # Operands.

    def arithmetic(self, parts: Sequence[Part | Token]) -> Part:
        left, op, right = cast(tuple[Part, Token, Part], parts)
        kind = _sum_kind(left, right) if op == "+" else "number"
        if kind == "string":
            a, b = _text_operand(left), _text_operand(right)
        else:
            a, b = _number_operand(left, op), _number_operand(right, op)
        depth = 1 + max(left.depth, right.depth)
        check_depth(depth, _at(op))
        return Part(_ast.Arithmetic(cast(ArithmeticOperator, str(op)), a, b), kind, left.position, depth)

    def signed(self, parts: Sequence[Part | Token]) -> Part:
        sign, part = cast(tuple[Token, Part], parts)
        if part.kind == "number" and isinstance(part.node, _ast.Value):
            value = cast(float, part.node.value)
            node: object = _ast.Value(-value) if sign == "-" else part.node
        else:  # A sign makes its operand a number: `0 - a` says both, and needs no node of its own.
            op = cast(ArithmeticOperator, str(sign))
            node = _ast.Arithmetic(op, _ast.Value(0), _number_operand(part, sign))
        return Part(node, "number", _at(sign), part.depth + 1)

    # Paper E's triples.

    def triple(self, parts: Sequence[Part | Token]) -> Part:
        name, op, value = cast(tuple[Part, Token | Part, Part], parts)
        if isinstance(op, Part):
            alias = cast(_ast.Attribute, op.node).name.lower()
            if alias not in ALIASES:
                remedy = f"Operators are {', '.join(dict.fromkeys(OPERATORS.values()))} or {', '.join(ALIASES)}."
                raise MalformedError(f"{alias!r} is not an operator of a triple", op.position, remedy)
            operator, position = ALIASES[alias], op.position
        else:
            operator, position = OPERATORS[op], _at(op)
        if value.kind == "attribute":  # A bare word stands for itself.
            value = Part(_ast.Value(cast(_ast.Attribute, value.node).name), "string", value.position)
        return _comparison(operator, name, value, position)

    def triples(self, parts: Sequence[Part]) -> _ast.Condition:
        return _condition(_flat(_ast.And, parts) if len(parts) > 1 else parts[0])


def _at(token: Token) -> int:
    return token.start_pos or 0


def _flat(node: type[_ast.And] | type[_ast.Or], parts: Sequence[Part]) -> Part:
    operands: list[_ast.Condition] = []
    depth = 0
    for part in parts:
        if isinstance(part.node, node):
            operands.extend(part.node.operands)
            depth = max(depth, part.depth - 1)
        else:
            operands.append(_condition(part))
            depth = max(depth, part.depth)
    return Part(node(tuple(operands)), "condition", parts[0].position, depth + 1)


def _condition(part: Part) -> _ast.Condition:
    """A part that stands where a condition has to: a bare attribute means that it is TRUE."""
    if part.kind == "condition":
        return cast(_ast.Condition, part.node)
    if part.kind == "attribute":
        return _ast.Comparison("=", cast(_ast.Attribute, part.node), _ast.Value(True))
    if part.kind == "boolean":
        return _ast.Constant(cast(bool, cast(_ast.Value, part.node).value))
    if part.kind == "null":
        raise MalformedError("NULL alone is not a condition", part.position, NULL_REMEDY)
    raise MalformedError(
        f"a {part.kind} alone is not a condition", part.position, "Compare it with something: attribute > 5."
    )


def _operand(part: Part) -> _ast.Operand:
    """A part that stands where a value has to."""
    if part.kind == "null":
        raise MalformedError("NULL is not a value to compare with", part.position, NULL_REMEDY)
    if part.kind == "condition":
        problem = "found a condition where a value is expected"
        raise MalformedError(problem, part.position, "Join conditions with AND, OR and NOT; comparisons do not chain.")
    if isinstance(part.node, _ast.Value) and type(part.node.value) is int and part.node.value > WHOLE_MAX:
        raise _beyond_64_bits(part.position)  # 2**63 is read because a minus sign may stand before it.
    return cast(_ast.Operand, part.node)


def _sum_kind(left: Part, right: Part) -> str:
    """What ``left + right`` is: a string, a number or, of attributes alone, a value of either kind."""
    kinds = {left.kind, right.kind}
    if "string" in kinds:
        return "string"
    return "value" if kinds <= {"attribute", "value"} else "number"


def _text_operand(part: Part) -> _ast.Operand:
    operand = _operand(part)
    if part.kind not in ("string", *OF_ANY_KIND):
        problem = f"a string is joined with a string, found a {part.kind}"
        raise MalformedError(problem, part.position, "Put quotes around both or around neither.")
    return operand


def _number_operand(part: Part, op: Token) -> _ast.Operand:
    operand = _operand(part)
    if part.kind not in ("number", *OF_ANY_KIND):
        raise MalformedError(
            f"{str(op)!r} works on numbers, found a {part.kind}", part.position, "Take the quotes off a number."
        )
    return operand


def _attribute(part: Part, what: str) -> _ast.Attribute:
    if part.kind != "attribute":
        found = "a computed value" if isinstance(part.node, _ast.Arithmetic) else f"a {part.kind}"
        remedy = 'An attribute is a name such as volume, trade.symbol or "any name".'
        raise MalformedError(f"{what} works on an attribute, found {found}", part.position, remedy)
    return cast(_ast.Attribute, part.node)


def _comparison(op: Operator, left: Part, right: Part, position: int) -> Part:
    a, b = _operand(left), _operand(right)
    if left.kind != right.kind and left.kind not in OF_ANY_KIND and right.kind not in OF_ANY_KIND:
        problem = f"a {left.kind} cannot be compared with a {right.kind}"
        raise MalformedError(problem, position, "Put quotes around both or around neither.")
    if op not in ("=", "<>") and "boolean" in (left.kind, right.kind):
        raise MalformedError(f"booleans have no order, so {op} cannot compare them", position, "Use = or <>.")
    if isinstance(a, _ast.Value) and isinstance(b, _ast.Value):
        return Part(_ast.Constant(compare_values(op, a.value, b.value)), "condition", left.position)
    return Part(_ast.Comparison(op, a, b), "condition", left.position, max(left.depth, right.depth))


def compare_values(op: str, a: PlainValue, b: PlainValue) -> bool:
    """Compare two values of one kind."""
    if op == "=":
        return a == b
    if op == "<>":
        return a != b
    if op == "<":
        return a < b  # type: ignore[operator]
    if op == "<=":
        return a <= b  # type: ignore[operator]
    return a > b if op == ">" else a >= b  # type: ignore[operator]


def _membership(left: Part, items: Sequence[Part], *, negated: bool) -> Part:
    """A list of literals is one node; any other member is a comparison of its own, beside it."""
    literals = [item for item in items if isinstance(item.node, _ast.Value)]
    for item in items:
        if item.kind == "null":
            raise MalformedError(
                "NULL cannot be in the list", item.position, "Write `... OR attribute IS NULL` beside the list."
            )
        if isinstance(item.node, _ast.Value) and item.kind != literals[0].kind:
            problem = f"the list mixes kinds: a {literals[0].kind} and a {item.kind}"
            raise MalformedError(
                problem, item.position, "Quote all the values of the list or none; or write two lists with OR."
            )
    parts: list[Part] = []
    if left.kind == "attribute" and literals:
        values = tuple([cast(_ast.Value, _operand(item)).value for item in literals])
        node = _ast.Membership(cast(_ast.Attribute, left.node), values, negated)
        parts.append(Part(node, "condition", left.position))
        items = [item for item in items if not isinstance(item.node, _ast.Value)]
    parts += [_comparison("<>" if negated else "=", left, item, item.position) for item in items]
    return parts[0] if len(parts) == 1 else _flat(_ast.And if negated else _ast.Or, parts)


def _like(left: Part, right: Part, *, negated: bool) -> Part:
    pattern, escape = cast(tuple[str, str | None], right.node)
    attribute = _attribute(left, "NOT LIKE" if negated else "LIKE")
    return Part(_ast.Like(attribute, pattern, escape, negated), "condition", left.position)


def _matches(left: Part, right: Part, *, negated: bool) -> Part:
    attribute = _attribute(left, "NOT MATCHES" if negated else "MATCHES")
    pattern = _text(right)
    problem = pattern_problem(pattern)
    if problem is not None:
        before = pattern[: problem.position]  # a quote is written twice, behind the one that opens the string
        position = right.position + 1 + len(before) + before.count("'")
        raise MalformedError(problem.problem, position, problem.remedy)
    return Part(_ast.Matches(attribute, pattern, negated), "condition", left.position)


def _text(part: Part) -> str:
    value = cast(_ast.Value, part.node).value
    assert kind_of(value) == "string"
    return cast(str, value)


def string_of(written: str) -> str:
    """The string that a literal in single quotes means."""
    return written[1:-1].replace("''", "'")


def number_of(written: str) -> int | float:
    """The number that a literal means; OverflowError, with the problem and the remedy, if there is none."""
    is_hexadecimal = written[:2] in ("0x", "0X")
    whole = written.rstrip("lL")
    if is_hexadecimal or whole.isdigit():
        digits = (whole[2:] if is_hexadecimal else whole).lstrip("0")
        if len(digits) > 19 or (number := int(digits or "0", 16 if is_hexadecimal else 10)) > WHOLE_MAX + 1:
            raise OverflowError(_WHOLE_PROBLEM, _WHOLE_REMEDY)
        return number
    value = float(written)
    if isinf(value):
        raise OverflowError("the number is too large for a double", "The largest is about 1.797e308.")
    return value


def _beyond_64_bits(position: int) -> MalformedError:
    return MalformedError(_WHOLE_PROBLEM, position, _WHOLE_REMEDY)
