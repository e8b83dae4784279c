"""Reports: what people look at. Tables for the terminal, pictures of the overlay, and a page in HTML.

`terminal` prints, `pictures` draws, `figures` works out what a pipeline run says as one value, the `Report`, and `page`
makes HTML of it (docs/reference/report.md). Names load on first use: who prints a table needs no prediction.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.report.figures import Report, read_report
    from tidings.report.page import render_report, write_report
    from tidings.report.pictures import check_format, draw, draw_placement
    from tidings.report.terminal import print_summary

__all__ = [
    "Report",
    "check_format",
    "draw",
    "draw_placement",
    "print_summary",
    "read_report",
    "render_report",
    "write_report",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Report": "figures",
        "check_format": "pictures",
        "draw": "pictures",
        "draw_placement": "pictures",
        "print_summary": "terminal",
        "read_report": "figures",
        "render_report": "page",
        "write_report": "page",
    },
)
