"""The page of a comparison: the same scenario by four methods, subscriber by subscriber, in one HTML file."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from tidings.model.units import percent
from tidings.rehearsal import WAYS, Comparison, Estimate, Way
from tidings.report.page._charts import Axis, Chart, Line, Mark, Point, draw
from tidings.report.page._document import write_whole
from tidings.report.page._markup import Markup, joined, tag
from tidings.report.page._words import lateness

__all__ = ["render_comparison", "write_comparison"]

WHAT: Final[dict[Way, str]] = {
    "simulator": "the compiled model of queues, links, failures and schemes",
    "protocol": "the real brokers and clients in virtual time",
    "rehearsal": "real broker processes on one machine, in scaled time",
    "predictor": "formulas, or a short run of the event loop where these leave something out",
}
WIDTH, LINE_HEIGHT = 260.0, 11.0
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def write_comparison(found: Comparison, path: str | Path) -> None:
    """Write the page under a name beside it, and rename it when it is complete."""
    write_whole(Path(path), render_comparison(found))


def render_comparison(found: Comparison) -> str:
    """The page as text; the same comparison gives the same text."""
    style = files("tidings.report.page").joinpath("style.css").read_text("utf-8")
    title = joined(found.title or "A scenario", ", by four methods")
    head = joined(
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        tag("title", title),
        Markup(f'<link rel="icon" href="data:,"><style>\n{style}</style>'),
    )
    top = tag("header", tag("p", "Tidings comparison", class_="mark"), tag("h1", title))
    body = tag("body", top, tag("main", _verdict(found), _methods(found), _subscribers(found)))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>{body}</html>\n'


def _verdict(found: Comparison) -> Markup:
    if found.agrees:
        words = f"All methods that can be judged agree within noise plus {100 * found.tolerance:.1f} points."
    else:
        words = f"{len(found.disagreements):,} disagreements beyond noise and tolerance."
    lines = [
        tag(
            "li",
            f"{each.subscription}: {each.other} differs from {each.one} by {100 * each.difference:+.2f} points; "
            f"{100 * each.allowed:.2f} points are allowed.",
        )
        for each in found.disagreements
    ]
    how = (
        f"{found.published:,} events, {found.matched:,} deliveries, seed {found.seed}. Simulator, protocol and "
        f"rehearsal process the same events and outages; their noise is estimated from {found.batches} batches of "
        f"time. Intervals are {percent(found.level, 0)} intervals. The predictor is compared with the mean of "
        f"{found.seeds} seeds of the simulator, and may differ by {100 * found.predictor_tolerance:.1f} points "
        "beyond noise."
    )
    return tag(
        "section", tag("p", tag("strong", words)), tag("ul", *lines) if lines else None, tag("p", how), id="in-short"
    )


def _methods(found: Comparison) -> Markup:
    rows = []
    for method in WAYS:
        judged: str | None = found.skipped.get(method)
        if judged is None:
            judged = "; ".join(found.unjudged.get(method, ())) or "judged"
        wall_s = found.wall_s.get(method)
        rows.append(
            tag(
                "tr",
                tag("th", method, scope="row"),
                tag("td", WHAT[method]),
                tag("td", _share(found.total[method]), class_="figure"),
                tag("td", "–" if wall_s is None else f"{wall_s:.1f} s", class_="figure"),
                tag("td", judged),
            )
        )
    share = None
    if found.machine_share_s is not None:
        share = tag(
            "p",
            f"The rehearsal ran {found.scale:g} times as fast as the scenario. The machine added up to "
            f"{found.machine_share_s:.3g} s of the scenario's time to a delay (99th percentile); an event that was "
            "late by less is not held against the rehearsal.",
        )
    heads = ("method", "what it is", "on time", "time taken", "judged?")
    return tag("section", tag("h2", "The methods"), _table("All subscriptions together", heads, rows), share)


def _subscribers(found: Comparison) -> Markup:
    methods = [method for method in WAYS if method not in found.skipped]
    lows = [each.low for row in found.subscriptions.values() for each in row.shares.values() if each is not None]
    low = min([*lows, 0.99])
    bad = {each.subscription for each in found.disagreements}
    rows = []
    for number, (name, row) in enumerate(found.subscriptions.items()):
        cells = [tag("td", _share(row.shares[method]), class_="figure") for method in methods]
        marks = tag("td", draw(_intervals(f"shares-{number}", name, {each: row.shares[each] for each in methods}, low)))
        verdict = "differs" if name in bad else "agrees"
        rows.append(
            tag(
                "tr",
                tag("th", name, scope="row"),
                tag("td", f"{row.matched:,}", class_="figure"),
                *cells,
                marks,
                tag("td", verdict),
            )
        )
    heads = ("subscriber", "matched", *methods, f"from {percent(low)} to 100 %, in this order", "")
    return tag("section", tag("h2", "Subscribers"), _table("On-time share by each method", heads, rows))


def _table(caption: str, heads: tuple[str, ...], rows: list[Markup]) -> Markup:
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in heads)))
    return tag("div", tag("table", tag("caption", caption), head, tag("tbody", *rows)), class_="frame")


def _share(found: Estimate | None) -> str:
    if found is None:
        return "–"
    noise = "" if found.low == found.high else f" ({100 * found.low:.1f}–{100 * found.high:.1f})"
    return f"{percent(found.share)}{noise}"


def _intervals(name: str, subscriber: str, shares: dict[Way, Estimate | None], low: float) -> Chart:
    """A line from the low to the high end for each method, with a point at the share."""
    marks: list[Mark] = []
    known = {method: found for method, found in shares.items() if found is not None}
    for place, (method, found) in enumerate(reversed(shares.items())):
        if found is not None:
            y = place + 0.5
            title = f"{method}: {_share(found)}"
            marks.append(Line(points=((found.low, y), (found.high, y)), style="axis"))
            marks.append(Point(at=(found.share, y), style=f"point {lateness(found.share)}", title=title, size=7.0))
    return Chart(
        name=name,
        title=f"On-time share of {subscriber} by each method",
        description=", ".join(f"{method} {_share(found)}" for method, found in known.items()),
        x=Axis(low=low, high=1.0),
        y=Axis(low=0.0, high=float(len(shares))),
        marks=tuple(marks),
        width=WIDTH,
        height=LINE_HEIGHT * len(shares),
        margins=(4.0, 4.0, 0.0, 0.0),
    )
