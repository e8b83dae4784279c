"""Tables that can be sorted: headings are buttons, cells carry their sort key, and the script sorts."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidings.model.units import percent
from tidings.report.page._markup import Content, Markup, joined, tag
from tidings.report.page._words import duration, lateness, per_second

__all__ = ["Cell", "Column", "bar", "number", "picked", "rate", "row", "share", "table", "text", "time"]


class Column(NamedTuple):
    """A heading; numbers are aligned to the right, and `is_wide` columns are hidden on a narrow screen."""

    title: str
    is_number: bool = False
    is_wide: bool = False
    hint: str | None = None


class Cell(NamedTuple):
    """The text and its sort key."""

    shown: Content
    key: str | float | None


def text(value: str) -> Cell:
    return Cell(value, value.casefold())


def number(value: float | None, shown: str) -> Cell:
    return Cell(shown, value)


def time(value_s: float | None) -> Cell:
    return Cell(duration(value_s), value_s)


def rate(value: float) -> Cell:
    return Cell(per_second(value), value)


def share(value: float | None, digits: int = 1) -> Cell:
    return Cell(percent(value, digits), value)


def bar(value: float | None) -> Cell:
    """An on-time share, with a bar in the colour of its lateness."""
    if value is None:
        return Cell("–", None)
    filled = tag("span", class_=f"filled {lateness(value)}", style=f"inline-size:{100 * value:.1f}%")
    return Cell(joined(tag("span", filled, class_="bar", aria_hidden="true"), percent(value)), value)


def picked(name: str) -> Cell:
    """The name of a subscription, as a button that selects it."""
    return Cell(tag("button", name, type="button", class_="pick", data_name=name), name.casefold())


def row(columns: Sequence[Column], cells: Sequence[Cell], **attributes: str | float | None) -> Markup:
    made = []
    for place, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        key = "" if cell.key is None else f"{cell.key:.9g}" if isinstance(cell.key, float) else str(cell.key)
        kind = " ".join(name for name, is_so in (("figure", column.is_number), ("wide", column.is_wide)) if is_so)
        if place:
            made.append(tag("td", cell.shown, class_=kind or None, data_key=key))
        else:
            made.append(tag("th", cell.shown, scope="row", data_key=key))
    return tag("tr", *made, **attributes)


def table(
    name: str, caption: Content, columns: Sequence[Column], rows: Iterable[Markup], *, sorted_by: int | None = None
) -> Markup:
    """`sorted_by` is the column by which the rows come sorted, ascending; -1 - column: descending."""
    heads = []
    for place, column in enumerate(columns):
        order = "ascending" if sorted_by == place else "descending" if sorted_by == -1 - place else "none"
        kind = " ".join(each for each, is_so in (("figure", column.is_number), ("wide", column.is_wide)) if is_so)
        button = tag("button", column.title, type="button", class_="sort", title=column.hint)
        heads.append(tag("th", button, scope="col", class_=kind or None, aria_sort=order))
    whole = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
        id=name,
        class_="sortable",
    )
    return tag("div", whole, class_="frame")
