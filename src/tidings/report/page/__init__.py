"""Pages: a report, or a comparison, as one self-contained HTML file. Names load on first use."""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.report.page._document import render_report, write_report
    from tidings.report.page._methods import render_comparison, write_comparison

__all__ = ["render_comparison", "render_report", "write_comparison", "write_report"]

__getattr__, __dir__ = lazily(__name__)
