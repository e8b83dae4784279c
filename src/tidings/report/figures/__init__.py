"""The figures of a report, worked out from the tables of a pipeline run without Spark."""

from tidings.report.figures._journeys import Part, journeys_of, parts_of
from tidings.report.figures._read import read_report
from tidings.report.figures._reasons import reason_of
from tidings.report.figures._report import (
    BINS,
    SHOWN_MAX,
    Cause,
    Change,
    Changes,
    Comparison,
    Headline,
    Journey,
    Ordering,
    Place,
    PolicyPoint,
    Reason,
    Report,
    SchemeFigures,
    Schemes,
    Section,
    Station,
    SubscriptionFigures,
    Window,
)
from tidings.report.figures._words import shown_share, shown_time

__all__ = [
    "BINS",
    "SHOWN_MAX",
    "Cause",
    "Change",
    "Changes",
    "Comparison",
    "Headline",
    "Journey",
    "Ordering",
    "Part",
    "Place",
    "PolicyPoint",
    "Reason",
    "Report",
    "SchemeFigures",
    "Schemes",
    "Section",
    "Station",
    "SubscriptionFigures",
    "Window",
    "journeys_of",
    "parts_of",
    "read_report",
    "reason_of",
    "shown_share",
    "shown_time",
]
