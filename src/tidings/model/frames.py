"""Results as tables: columns for Arrow and pandas, and HTML for a notebook.

A result gives named columns (`Column`); the functions here turn them into an Arrow table or a pandas frame with the
same types whatever the values, also if all of them are missing. NaN counts as missing. PyArrow and pandas are loaded
when a function is called.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tidings.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["HTML_ROWS_MAX", "Column", "arrow_table", "html_page", "html_table", "pandas_frame"]

HTML_ROWS_MAX: Final = 50
"""Rows of an HTML table; the rest is counted in a last line."""

_INSTALL: Final = {"pyarrow": "pip install 'pyarrow>=18'", "pandas": "pip install 'pandas>=2.2,<3'"}


class Column(NamedTuple):
    """The values of one column, None or NaN where there is none; `texts` are lists of texts."""

    kind: Literal["text", "texts", "number"]
    values: Sequence[Any]


def arrow_table(columns: Mapping[str, Column]) -> "pa.Table":
    """The columns as an Arrow table."""
    pa = _loaded("pyarrow", "to_arrow()")
    types = {"text": pa.string(), "texts": pa.list_(pa.string()), "number": pa.float64()}
    arrays = {name: pa.array(column.values, types[column.kind], from_pandas=True) for name, column in columns.items()}
    return pa.table(arrays)


def pandas_frame(columns: Mapping[str, Column]) -> "pd.DataFrame":
    """The columns as a pandas frame."""
    _loaded("pandas", "to_pandas()")
    frame: pd.DataFrame = arrow_table(columns).to_pandas()
    return frame


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts, which are escaped; at most HTML_ROWS_MAX rows."""
    listed = list(rows)
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in listed[:HTML_ROWS_MAX]
    )
    more = f"<p>{len(listed) - HTML_ROWS_MAX:,} more rows</p>" if len(listed) > HTML_ROWS_MAX else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def html_page(title: str, *parts: str) -> str:
    """Parts under a title; the title is escaped, the parts are HTML."""
    return f"<div><h4>{escape(title)}</h4>{''.join(parts)}</div>"


def _loaded(module: str, method: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ConfigurationError(f"{method} needs {module}, which is not installed: {_INSTALL[module]}") from None
