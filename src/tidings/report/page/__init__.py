"""The page: a report as one self-contained HTML file."""

from tidings.report.page._render import render_report, write_report

__all__ = ["render_report", "write_report"]
