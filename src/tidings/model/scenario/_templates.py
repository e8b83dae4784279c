"""Filter texts with {parameters}: each client's values are inserted as SQL literals, then the text is parsed.

Strings are quoted, so a template is `symbol = {symbol}` without quotes; `{{` and `}}` are braces.
Besides the group's own parameters there are `{number}` (1 for the first client of the group), `{name}` and `{broker}`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from tidings.errors import FilterError
from tidings.model.documents import Place, suggestion
from tidings.model.scenario._content import AttributeValue

if TYPE_CHECKING:
    from tidings.model.filters import Filter

__all__ = ["BUILT_IN", "FilterTemplate", "check_parameters_are_used"]

BUILT_IN = ("number", "name", "broker")

_PARAMETER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


class FilterTemplate:
    """One filter text of a group; `place` is its place in the document."""

    def __init__(self, text: str, parameters: Mapping[str, object], place: Place) -> None:
        self._text = text
        self._place = place
        self._parsed: dict[str, Filter] = {}
        self._tests: _Tests | None = None
        self._is_checked = False
        self.used = {name for name in _PARAMETER.findall(text) if name}
        known = (*parameters, *BUILT_IN)
        for name in _PARAMETER.findall(text):
            if name and name not in known:
                place.fail(f"there is no parameter {{{name}}}; {suggestion(name, known, otherwise='known here are')}")

    def fill(self, values: Mapping[str, AttributeValue]) -> "Filter":
        """The filter of one client; equal texts are parsed once and share one value."""
        if self._tests is not None:
            with suppress(FilterError):  # the parser reports the error and its place in the text
                return _conjunction(self._tests, values)
        filled = self._parse(values)
        if self.used and not self._is_checked:
            # A conjunction of simple tests needs no parser for each of a hundred thousand clients. The first client is
            # made by both methods, and the shortcut is used for the others only if both agree.
            self._is_checked = True
            tests = _simple_tests(_PARAMETER.sub(_sentinel, self._text))
            if tests is not None and _conjunction(tests, values) == filled:
                self._tests = tests
        return filled

    def _parse(self, values: Mapping[str, AttributeValue]) -> "Filter":
        from tidings.model.filters import Filter

        text = _PARAMETER.sub(lambda found: self._piece(found, values), self._text)
        known = self._parsed.get(text)
        if known is not None:
            return known
        try:
            parsed = Filter.parse(text)
        except FilterError as error:
            return self._place.fail(f"not a filter: {error}")
        self._parsed[text] = parsed
        return parsed

    @staticmethod
    def _piece(found: re.Match[str], values: Mapping[str, AttributeValue]) -> str:
        name = found.group(1)
        return found.group()[0] if name is None else _literal(values[name])


_Tests = list[tuple[str, str, AttributeValue]]
_SENTINEL = "\ue000"


def _sentinel(found: re.Match[str]) -> str:
    name = found.group(1)
    return found.group()[0] if name is None else f"'{_SENTINEL}{name}{_SENTINEL}'"


def _simple_tests(text: str) -> _Tests | None:
    """The tests (attribute, operator, value) that the template is a conjunction of; None if it is anything else."""
    from tidings.model.filters import Filter, _ast

    try:
        condition = Filter.parse(text).condition
    except FilterError:
        return None
    tests: _Tests = []
    for part in condition.operands if isinstance(condition, _ast.And) else (condition,):
        match part:
            case _ast.Comparison(op, _ast.Attribute(name), _ast.Value(value)):
                tests.append((name, op, value))
            case _:
                return None
    return tests


def _conjunction(tests: _Tests, values: Mapping[str, AttributeValue]) -> "Filter":
    from tidings.model.filters import Filter

    return Filter.all_of(
        (name, op, values[value.strip(_SENTINEL)] if isinstance(value, str) and value[:1] == _SENTINEL else value)
        for name, op, value in tests
    )


def check_parameters_are_used(parameters: Mapping[str, object], used: set[str], place: Place) -> None:
    """Refuse a parameter that nothing uses."""
    for name in parameters:
        if name not in used:
            (place / name).fail(f"nothing uses the parameter `{name}`; write {{{name}}} in the filter, or leave it out")


def _literal(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)
