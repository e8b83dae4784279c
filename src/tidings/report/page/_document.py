"""One self-contained HTML file: template, style and script from files of this package, and the figures.

The page loads nothing from the network (its content security policy forbids it), so it opens from a disk, an e-mail or
an archive, now and in ten years. Data is text everywhere: elements are built by `tag`, and the JSON that the script
reads has no character that could end its element.
"""

from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import msgspec

from tidings.errors import InputError
from tidings.report.figures import Journey, Report
from tidings.report.page._markup import Markup, joined, tag
from tidings.report.page._opening import opening
from tidings.report.page._ordering import curve_paths, ordered
from tidings.report.page._remedies import TITLES, changed, placed, schemed
from tidings.report.page._sections import compared, overlay, waterfall, worst

__all__ = ["render_report", "write_report", "write_whole"]

SECTIONS = (
    ("in-short", "What to do first", opening),
    ("worst", "Who is affected", worst),
    ("overlay", "Map", overlay),
    ("waterfall", "Where the time goes", waterfall),
    ("changed", TITLES["changed"], changed),
    ("placed", "Moves", placed),
    ("schemed", "Failures", schemed),
    ("compared", "Prediction", compared),
    ("ordered", "Order", ordered),
)
DIGITS = 5
"""Significant digits of every figure that the script gets; more are noise."""


def write_report(report: Report, path: str | Path) -> None:
    """Write the page under a name beside it, and rename it when it is complete."""
    write_whole(Path(path), render_report(report))


def write_whole(place: Path, text: str) -> None:
    """A page appears whole or not at all."""
    temporary = place.with_name(f"_{place.name}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(place)
    except OSError as error:
        raise InputError(f"{place}: cannot be written: {error.strerror or error}") from None


def render_report(report: Report) -> str:
    """The page as text; the same report gives the same text."""
    here = files("tidings.report.page")
    style, script, template = (
        here.joinpath(name).read_text("utf-8") for name in ("style.css", "script.js", "template.html")
    )
    links = (tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in SECTIONS)
    return Template(template).substitute(
        title=joined(report.headline.title),
        style=style,
        script=script,
        contents=tag("ul", *links),
        main=Markup("\n".join(made(report) for _, _, made in SECTIONS)),
        figures=_json(_figures(report)),
    )


def _json(document: Any) -> str:
    text = msgspec.json.encode(document).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028")


def _figures(report: Report) -> dict[str, Any]:
    """The data of the script: stations, journeys by subscription, curves of disorder."""
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
                "onTime": None if station.on_time is None else _short(station.on_time),
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
