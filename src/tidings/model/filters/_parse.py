"""Reading a filter: text in, syntax tree out, or a FilterError that shows the place.

lark's LALR parser with an explicit stack (docs/decisions/0002-filter-parser.md), so the depth of the input is no
danger to the parser; the bounds below protect everything that comes after it. The parser is built on first use.
"""

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Final, cast

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from tidings.errors import FilterError
from tidings.model.filters import _ast
from tidings.model.filters._build import MAX_DEPTH, Builder, MalformedError, check_depth, unquoted
from tidings.model.filters._faults import fault, shorten
from tidings.model.filters._templates import Templates

MAX_LENGTH: Final = 1_000_000
"""How many characters a filter may have; a longer one is refused without being parsed."""

KEYWORDS: Final = {
    **{word: f"_{word}" for word in ("AND", "OR", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS")},
    **{word: word for word in ("NOT", "NULL", "TRUE", "FALSE")},
}
"""Reserved words and the terminals of the grammar that they are."""
_WORDS: Final = {**KEYWORDS, "MATCHES": "MATCHES"}
"""Those, and the word that is one only behind an operand."""

_NESTING: Final = re.compile(
    r"""'(?:[^']|'')*+'|"(?:[^"]|"")*+"|[()]|(?P<prefixes>(?:[-+]\s*){%d}|\b(?i:(?:NOT\s+){%d}))""".replace(
        "%d", str(MAX_DEPTH + 1)
    )
)

_OPERAND: Final = ("an attribute", "a number", "a string", "TRUE", "FALSE", "(")
_NAMES: Final = {
    "COMPARE": "a comparison",
    "_AND": "AND",
    "_OR": "OR",
    "SIGN": "+ or -",
    "SCALE": "*, / or %",
    "STRING": "a string in single quotes",
    "NUMBER": "a number",
    "QUOTED": "a quoted name",
    "NAME": "a name",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "LSQB": "[",
    "RSQB": "]",
    **{terminal: word for word, terminal in _WORDS.items()},
    "$END": "the end",
}
_ORDER: Final = {terminal: place for place, terminal in enumerate(_NAMES)}
_LOOK_BEHIND: Final = 40
"""How far before a fault its cause is looked for; more than blanks seldom stand between."""


def parse(text: str) -> _ast.Condition:
    """The condition of a text; FilterError if the text is malformed."""
    with _refusing(text):
        _check(text)
        return _templates().parse(text)


def parse_in_slices(text: str, tokens: int) -> Generator[None, None, _ast.Condition]:
    """The same, with a pause after every so many tokens."""
    with _refusing(text):
        _check(text)
        parser = _parser().parse_interactive(text)
        token: Token | None = None
        try:
            tokens_in: Iterator[Token] = parser.lexer_thread.lex(parser.parser_state)  # type: ignore[no-untyped-call]
            for count, token in enumerate(tokens_in, 1):
                parser.feed_token(token)
                if not count % tokens:
                    yield
            return cast(_ast.Condition, parser.feed_eof(token))  # type: ignore[no-untyped-call]
        except UnexpectedToken as error:
            error.interactive_parser = parser  # it knows what was expected
            raise


@contextmanager
def _refusing(text: str) -> Iterator[None]:
    """Report what the parser refuses, in our words."""
    try:
        yield
    except MalformedError as error:
        raise fault(error.problem, text=text, position=error.position, remedy=error.remedy) from None
    except UnexpectedToken as error:
        raise _refused_token(text, error) from None
    except UnexpectedCharacters as error:
        raise _refused_character(text, cast(int, error.pos_in_stream)) from None


def _check(text: str) -> None:
    """Refuse what is too long, too deep or no text, before it is parsed."""
    if not isinstance(text, str):
        raise FilterError(
            f"a filter is a text, not a {type(text).__name__}: write for example Filter.parse('price > 5')"
        )
    if len(text) > MAX_LENGTH:
        remedy = "Use IN for long lists of values, or several subscriptions."
        problem = f"the filter has {len(text):,} characters, the maximum is {MAX_LENGTH:,}"
        raise fault(problem, text=text, position=MAX_LENGTH, remedy=remedy)
    if not text.isascii():
        _check_encodable(text)
    if len(text) > MAX_DEPTH and _may_nest_deeply(text):
        _check_nesting(text)


def numbers_written(text: str) -> Iterator[tuple[str, int]]:
    """Every number of a filter that has been read, as it is written, and where it begins."""
    return ((str(token), token.start_pos or 0) for token in _parser().lex(text) if token.type == "NUMBER")


def names_written(text: str) -> Iterator[tuple[str, int]]:
    """Every attribute name of a filter that has been read, as often as it is written, and where it begins."""
    for token in _parser().lex(text):
        if token.type in ("NAME", "MATCHES"):
            yield str(token), token.start_pos or 0
        elif token.type == "QUOTED":
            yield unquoted(token), token.start_pos or 0


@cache
def _templates() -> Templates:
    return Templates(lambda text: cast(_ast.Condition, _parser().parse(text)))


@cache
def _parser() -> Lark:
    grammar = files(__package__).joinpath("_grammar.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        transformer=Builder(),
        lexer_callbacks={"NAME": _keyword},
    )


def _keyword(token: Token) -> Token:
    # Only ASCII spells a keyword: 'ıs'.upper() is 'IS' too, but a name with a dotless i is a name.
    if len(token) <= 7 and token.isascii():
        token.type = _WORDS.get(token.upper(), "NAME")
    return token


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"a lone surrogate (U+{ord(text[error.start]):04X}) is not a character"
        remedy = "Write text that can be encoded as UTF-8."
        raise fault(problem, text=text, position=error.start, remedy=remedy) from None


def _may_nest_deeply(text: str) -> bool:
    return text.count("(") + text.count("-") + text.count("+") + text.upper().count("NOT") > MAX_DEPTH


def _check_nesting(text: str) -> None:
    """Refuse deep nesting before parsing it: a scan is much faster than a parser that shifts a million tokens."""
    depth = 0
    for match in _NESTING.finditer(text):
        if match.lastgroup:
            check_depth(MAX_DEPTH + 1, match.start())
        elif match[0] == "(":
            depth += 1
            check_depth(depth, match.start())
        elif match[0] == ")":
            depth -= 1


def _refused_token(text: str, error: UnexpectedToken) -> FilterError:
    token = error.token
    position = len(text) if token.type == "$END" else token.start_pos or 0
    if not text.strip():
        return fault("the filter is empty", text=text, position=0, remedy="Write TRUE to accept every event.")
    found = "the end" if token.type == "$END" else f"{shorten(_spelling(text, token))!r}"
    accepted = set(error.accepts or error.expected)
    problem = f"found {found}, expected {_expected(accepted)}"
    return fault(problem, text=text, position=position, remedy=_remedy(text, token, position, accepted))


def _spelling(text: str, token: Token) -> str:
    return text[token.start_pos : token.end_pos]


def _expected(terminals: set[str]) -> str:
    """The terminals that the grammar accepts, in words; what can begin an operand is one phrase."""
    words: list[str] = []
    if "NAME" in terminals:
        terminals = terminals - {"MATCHES"}
    if {"NAME", "NUMBER", "STRING", "LPAR"} <= terminals:
        words += _OPERAND
        terminals = terminals - {"NAME", "NUMBER", "STRING", "LPAR", "QUOTED", "TRUE", "FALSE", "NULL", "SIGN", "LSQB"}
    words += [_NAMES[terminal] for terminal in sorted(terminals, key=_ORDER.__getitem__)]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _remedy(text: str, token: Token, position: int, accepted: set[str]) -> str:
    """What to write instead, where the mistake is a common one."""
    before = text[max(0, position - _LOOK_BEHIND) : position].rstrip()
    if token.type == "COMPARE":
        if token == "=" and before.endswith("="):
            return "Equality is a single =."
        if "_AND" in accepted:
            return "Comparisons do not chain: write a < b AND b < c."
        return ""
    if token.type == "SCALE" and "STRING" in accepted:
        return "A pattern goes into quotes: LIKE '%text%'." if token == "%" else ""
    if token.type == "QUOTED" and "STRING" in accepted:
        return "Double quotes name an attribute; write a string in single quotes: 'text'."
    if token.type == "RPAR":
        return "There is one closing parenthesis too many." if "$END" in accepted else ""
    if token.type == "$END" and "RPAR" in accepted:
        return "A closing parenthesis is missing."
    if token.type in KEYWORDS.values() and "NAME" in accepted:
        return f'{token.upper()} is a keyword; to use it as an attribute name, quote it: "{token}".'
    if token.type in ("NAME", "NUMBER", "STRING") and "_AND" in accepted:
        return "Join conditions with AND or OR; put strings and names with other characters into quotes."
    return ""


_CHARACTER_REMEDIES: Final = {
    "'": "A closing quote is missing; inside a string, write a quote twice: 'it''s'.",
    '"': 'A closing double quote is missing; inside a quoted name, write it twice: "a ""b""".',
    "&": "Write AND.",
    "|": "Write OR.",
    "!": "Write NOT, or <> for `is not equal`.",
    ";": "A filter is one condition, without a semicolon.",
    "{": "Name an attribute without braces.",
    "`": 'Quote a name with double quotes: "any name".',
}


def _refused_character(text: str, position: int) -> FilterError:
    character = text[position]
    if character in "'\"":
        problem = f"the {'string' if character == chr(39) else 'quoted name'} that begins here does not end"
    else:
        problem = f"found {character!r}, which is not part of the language"
    remedy = _CHARACTER_REMEDIES.get(
        character, "A name with such characters is quoted: \"any name\"; a string: 'text'."
    )
    return fault(problem, text=text, position=position, remedy=remedy)
