"""One self-contained HTML file: template, style and script from files of this package, the figures in between.

The page asks the network for nothing (its content security policy forbids it), so it opens from a disk, an e-mail or an
archive, now and in ten years. Data is text everywhere: elements are built by `tag`, and the JSON that the script reads
has no character that could end its element.
"""

from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import msgspec

from tidings.report.figures import Journey, Report
from tidings.report.page._choices import TITLES, changed, placed, schemed
from tidings.report.page._markup import Markup, joined, tag
from tidings.report.page._opening import opening
from tidings.report.page._order import curve_paths, ordered
from tidings.report.page._page_files import write_whole
from tidings.report.page._sections import compared, overlay, waterfall, worst

__all__ = ["render_report", "write_report"]

CONTENTS = (
    ("in-short", "In short"),
    ("overlay", "Overlay"),
    ("worst", "Worst subscribers"),
    ("waterfall", "Where the time goes"),
    ("compared", "Predicted and measured"),
    ("changed", TITLES["changed"]),
    ("schemed", "Failures"),
    ("placed", "Placement"),
    ("ordered", "Order"),
)
DIGITS = 5
"""Of every figure that the script gets; more are noise."""


def write_report(report: Report, path: str | Path) -> None:
    """Write the page under a name beside it, and rename it when it is complete."""
    write_whole(Path(path), render_report(report))


def render_report(report: Report) -> str:
    """The page as text; the same report gives the same text."""
    here = files("tidings.report.page")
    style, script, template = (
        here.joinpath(name).read_text("utf-8") for name in ("style.css", "script.js", "template.html")
    )
    parts = (opening, overlay, worst, waterfall, compared, changed, schemed, placed, ordered)
    links = (tag("li", tag("a", title, href=f"#{name}")) for name, title in CONTENTS)
    return Template(template).substitute(
        title=joined(report.headline.title),
        style=style,
        script=script,
        contents=tag("ul", *links),
        main=Markup("\n".join(part(report) for part in parts)),
        figures=_json(_figures(report)),
    )


def _json(document: Any) -> str:
    text = msgspec.json.encode(document).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028")


def _figures(report: Report) -> dict[str, Any]:
    """What the script draws from: stations, journeys by subscription, curves of disorder."""
    return {
        "stations": [
            {
                "name": station.name,
                "kind": station.kind,
                "ends": [station.source, station.target],
                "busy": _short(station.utilisation),
                "rate": _short(station.rate_per_s),
                "waiting": _short(station.waiting_s),
                "service": _short(station.service_s),
                "slowness": _short(station.slowness_s_per_kb),
                "propagation": _short(station.propagation_s),
                "loss": _short(station.loss),
                "up": _short(station.availability),
            }
            for station in report.stations
        ],
        "places": [[place.subscriptions, place.publishers, place.matched, place.on_time] for place in report.places],
        "journeys": {name: [_journey(each) for each in own] for name, own in report.journeys.items() if own},
        "wants": {each.name: each.filter for each in report.subscriptions if each.name in report.journeys},
        "curves": {} if report.ordering is None else curve_paths(report.ordering),
    }


def _journey(journey: Journey) -> dict[str, Any]:
    return {
        "publisher": journey.publisher,
        "share": _short(journey.share),
        "size": _short(journey.size_kb),
        "allowed": None if journey.allowed_s is None else _short(journey.allowed_s),
        "arrived": _short(journey.arrived),
        "onTime": _short(journey.on_time),
        "mean": None if journey.mean_delay_s is None else _short(journey.mean_delay_s),
        "stations": journey.stations,
    }


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
