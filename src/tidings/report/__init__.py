"""Reports for people: tables on the terminal, pictures of the overlay, and a page in HTML.

`pictures` draws, `figures` computes the results of a pipeline run as one value, the `Report`, and `page` makes HTML of
it (docs/reference/report.md). Names load on first use: printing a table needs no prediction.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.report._summary_tables import print_summary
    from tidings.report.figures import Report, read_report
    from tidings.report.page import render_report, write_report
    from tidings.report.pictures import check_format, draw, draw_placement

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

__getattr__, __dir__ = lazily(__name__)
