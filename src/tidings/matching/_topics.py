"""Topic patterns as equalities, so that an index finds them by a look-up.

The *shape* of a pattern is where its wildcards are: ``plant/+/temp/#`` has three levels, the second of them open, and a
rest. Seen through a shape, a topic has a key: the topic with ``+`` in the open levels and ``#`` for the rest, if it has
the levels for it. A topic matches a pattern exactly when its key through the pattern's shape is the pattern. So a shape
is to an index what an attribute is, with strings that are compared for equality, and thousands of patterns of one shape
cost one look-up.

An event looks through every shape that patterns of an attribute have, so an index keeps MAX_SHAPES of them. A pattern
of yet another shape is found by its literal first levels (at most MAX_LITERAL_LEVELS), and the filter confirms it.
"""

from typing import Final, NamedTuple

from tidings.model.filters import Clause, Filter, Presence, Test, Topic

__all__ = ["MAX_LITERAL_LEVELS", "MAX_SHAPES", "TopicShape", "TopicShapes", "shape_of"]

MAX_SHAPES: Final = 48
"""How many shapes of patterns an index has exact keys for, by attribute."""

MAX_LITERAL_LEVELS: Final = 8
"""How many levels the key of a pattern of any other shape has at most; each length is one more shape."""


class TopicShape(NamedTuple):
    """Where a pattern has wildcards."""

    levels: int
    open_levels: tuple[int, ...]
    has_rest: bool

    def key(self, levels: list[str]) -> str | None:
        """A topic, given by its levels, as seen through this shape; None if no pattern of it matches the topic."""
        count = self.levels
        if len(levels) != count and (len(levels) < count or not self.has_rest):
            return None
        places = self.open_levels
        if (not count or (places and not places[0])) and levels[0][:1] == "$":
            return None
        if not places:
            seen = levels if len(levels) == count else levels[:count]
        else:
            seen = levels[:count]
            for place in places:
                seen[place] = "+"
        return "/".join([*seen, "#"] if self.has_rest else seen)


def shape_of(pattern: str) -> TopicShape:
    """The shape of a pattern."""
    levels = pattern.split("/")
    has_rest = levels[-1] == "#"
    count = len(levels) - has_rest
    return TopicShape(count, tuple(place for place in range(count) if levels[place] == "+"), has_rest)


class TopicShapes:
    """The shapes that an index has keys for, by attribute."""

    def __init__(self) -> None:
        self._exact: dict[str, set[TopicShape]] = {}

    def settled(self, filter: Filter) -> tuple[Clause, ...]:
        """The clauses of a filter with topic tests that the index has keys for; a residual confirms what is coarser."""
        if not any(type(test) is Topic for clause in filter.clauses for test in clause.tests):
            return filter.clauses  # nearly always
        return tuple(self._settled(clause, filter) for clause in filter.clauses)

    def _settled(self, clause: Clause, filter: Filter) -> Clause:
        tests = tuple(self._test(test) if isinstance(test, Topic) else test for test in clause.tests)
        is_coarser = any(new is not old for new, old in zip(tests, clause.tests, strict=True))
        return Clause(tests, filter.condition) if is_coarser else clause

    def _test(self, test: Topic) -> Test:
        exact = self._exact.setdefault(test.attribute, set())
        shape = shape_of(test.pattern)
        if shape in exact or len(exact) < MAX_SHAPES:
            exact.add(shape)
            return test
        if test.negated:
            return Presence(test.attribute, missing=False)
        literal = shape.open_levels[0] if shape.open_levels else shape.levels
        start = test.pattern.split("/")[: min(literal, MAX_LITERAL_LEVELS)]
        coarse = "/".join([*start, "#"])
        return test if coarse == test.pattern else Topic(test.attribute, coarse)
