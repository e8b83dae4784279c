"""The page of a comparison: the same scenario four ways, subscriber by subscriber, in one self-contained HTML file."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from tidings.rehearsal import WAYS, Comparison, Estimate, Way
from tidings.report.page._markup import Markup, joined, tag
from tidings.report.page._page_files import write_whole
from tidings.report.page._words import percent

__all__ = ["render_comparison", "write_comparison"]

WHAT: Final[dict[Way, str]] = {
    "simulator": "the compiled model of queues, links, failures and schemes",
    "protocol": "the real brokers and clients in virtual time",
    "rehearsal": "real broker processes on one machine, in scaled time",
    "predictor": "formulas, or a short run of the event loop where these leave something out",
}
_COLOURS: Final[dict[Way, str]] = {
    "simulator": "var(--service)",
    "protocol": "var(--transmission)",
    "rehearsal": "var(--waiting)",
    "predictor": "var(--propagation)",
}
WIDTH, LINE = 260.0, 9.0
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def write_comparison(found: Comparison, path: str | Path) -> None:
    """Write the page under a name beside it, and rename it when it is complete."""
    write_whole(Path(path), render_comparison(found))


def render_comparison(found: Comparison) -> str:
    """The page as text; the same comparison gives the same text."""
    style = files("tidings.report.page").joinpath("style.css").read_text("utf-8")
    title = joined(found.title or "A scenario", ", four ways")
    head = joined(
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        tag("title", title),
        Markup(f'<link rel="icon" href="data:,"><style>\n{style}</style>'),
    )
    top = tag("header", tag("p", "Tidings comparison", class_="mark"), tag("h1", title))
    body = tag("body", top, tag("main", _verdict(found), _ways(found), _subscribers(found)))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>{body}</html>\n'


def _verdict(found: Comparison) -> Markup:
    if found.agrees:
        words = f"All ways that can be judged agree within noise plus {100 * found.tolerance:.1f} points."
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


def _ways(found: Comparison) -> Markup:
    rows = []
    for way in WAYS:
        judged: str | None = found.skipped.get(way)
        if judged is None:
            judged = "; ".join(found.unjudged.get(way, ())) or "judged"
        wall_s = found.wall_s.get(way)
        rows.append(
            tag(
                "tr",
                tag("th", _dot(way), f" {way}", scope="row"),
                tag("td", WHAT[way]),
                tag("td", _share(found.total[way]), class_="figure"),
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
    heads = ("way", "what it is", "on time", "time taken", "judged?")
    return tag("section", tag("h2", "The ways"), _table("All subscriptions together", heads, rows), share)


def _subscribers(found: Comparison) -> Markup:
    ways = [way for way in WAYS if way not in found.skipped]
    lows = [each.low for row in found.subscriptions.values() for each in row.shares.values() if each is not None]
    low = min([*lows, 0.99])
    bad = {each.subscription for each in found.disagreements}
    rows = []
    for name, row in found.subscriptions.items():
        cells = [tag("td", _share(row.shares[way]), class_="figure") for way in ways]
        marks = tag("td", _marks([(way, row.shares[way]) for way in ways], low))
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
    heads = ("subscriber", "matched", *ways, f"from {percent(low)} to 100 %", "")
    return tag("section", tag("h2", "Subscribers"), _table("On-time share each way", heads, rows))


def _table(caption: str, heads: tuple[str, ...], rows: list[Markup]) -> Markup:
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in heads)))
    return tag("div", tag("table", tag("caption", caption), head, tag("tbody", *rows)), class_="frame")


def _share(found: Estimate | None) -> str:
    if found is None:
        return "–"
    noise = "" if found.low == found.high else f" ({100 * found.low:.1f}–{100 * found.high:.1f})"
    return f"{percent(found.share)}{noise}"


def _dot(way: Way) -> Markup:
    return tag("span", "●", style=f"color:{_COLOURS[way]}", aria_hidden="true")


def _marks(shares: list[tuple[Way, Estimate | None]], low: float) -> Markup:
    """A line from the low to the high end for each way, with a dot at the share."""

    def across(share: float) -> float:
        return 4.0 + (WIDTH - 8.0) * (max(share, low) - low) / (1.0 - low)

    def drawn() -> Iterator[Markup]:
        for place, (way, found) in enumerate(shares):
            y = LINE * (place + 0.5)
            if found is not None:
                ends = {"x1": across(found.low), "x2": across(found.high), "y1": y, "y2": y}
                yield tag("line", stroke=_COLOURS[way], **ends)
                yield tag("circle", cx=across(found.share), cy=y, r=3.0, fill=_COLOURS[way])

    height = LINE * len(shares)
    return tag("svg", *drawn(), viewBox=f"0 0 {WIDTH:g} {height:g}", width=WIDTH, height=height, aria_hidden="true")
