"""The sections of the page, one function each; what has no data is a sentence that says what would add it."""

from collections.abc import Sequence

from tidings.report.figures import SHOWN_MAX, Report, Section, Station, SubscriptionFigures
from tidings.report.page._charts import Axis, Chart, legend
from tidings.report.page._map import draw_map
from tidings.report.page._markup import Content, Markup, tag
from tidings.report.page._tables import Column, bar, number, picked, rate, row, share, table, text, time
from tidings.report.page._words import count, left_out, percent, volume

__all__ = ["absent", "compared", "overlay", "section", "waterfall", "worst"]


def section(name: str, title: str, *content: Content) -> Markup:
    return tag("section", tag("h2", title, id=name), *content, aria_labelledby=name)


def absent(report: Report, what: Section, name: str, title: str) -> Markup:
    """A section without data. What stands between backquotes is a command."""
    pieces = report.missing.get(what, "").split("`")
    said = [tag("code", piece) if place % 2 else piece for place, piece in enumerate(pieces)]
    return section(name, title, tag("p", *said, class_="absent"))


def overlay(report: Report) -> Markup:
    """The map, what is under the pointer, and all stations in tables."""
    steps = ("below 20 %", "20 to 40 %", "40 to 60 %", "60 to 80 %", "80 to 95 %", "95 % and more")
    content: list[Content] = []
    if "map" in report.missing:
        content.append(tag("p", report.missing["map"], class_="absent"))
    else:
        hint = "Point at a broker or link, or use Tab and the arrow keys, to see its figures. Choose one (click, or "
        hint += "Enter) to limit all tables to it."
        content += [
            tag("p", hint, class_="quiet no-print"),
            tag(
                "div",
                draw_map(report),
                tag(
                    "div",
                    legend(
                        *((f"u{place}", f"{what} busy") for place, what in enumerate(steps)),
                        ("ring-key", "ring: on-time share of its subscriptions"),
                        ("publishes-key", "publishers here"),
                        ("idle-key", "link without traffic"),
                    ),
                    tag("div", tag("p", "Nothing selected.", class_="quiet"), id="details", aria_live="polite"),
                    class_="aside",
                ),
                class_="overlay",
            ),
        ]
    content += [_brokers(report), _links(report)]
    return section("overlay", "The overlay", *content)


def _brokers(report: Report) -> Markup:
    columns = (
        Column("broker"),
        Column("busy", True),
        Column("arrivals", True, True),
        Column("waiting", True, hint="mean time that an event waits here"),
        Column("matching", True, True, hint="mean time that the broker processes an event"),
        Column("up", True, True, hint="share of the time without an outage"),
        Column("subscriptions", True, True),
        Column("on time", True),
    )
    order = sorted(range(len(report.places)), key=lambda n: (-report.stations[n].utilisation, report.stations[n].name))
    rows = []
    for n in order[:SHOWN_MAX]:
        station, place = report.stations[n], report.places[n]
        cells = (
            text(station.name),
            share(station.utilisation),
            rate(station.rate_per_s),
            time(station.waiting_s),
            time(station.service_s),
            share(station.availability, 2),
            number(place.subscriptions, f"{place.subscriptions:,}"),
            bar(place.on_time / place.matched if place.matched else None),
        )
        rows.append(row(columns, cells, data_broker=n))
    return table("brokers", f"Brokers{_of(len(rows), len(order), 'busiest')}", columns, rows, sorted_by=-2)


def _links(report: Report) -> Markup:
    columns = (
        Column("link"),
        Column("busy", True),
        Column("events", True, True),
        Column("volume", True, True),
        Column("waiting", True, hint="mean time that an event waits to be sent"),
        Column("propagation", True, True),
        Column("lost", True),
        Column("expired", True, True, hint="share of events that expired in the queue"),
    )
    used = [(len(report.places) + n, link) for n, link in enumerate(report.links) if link.rate_per_s > 0.0]
    order = sorted(used, key=lambda item: (-item[1].utilisation, -item[1].kb_per_s, item[1].name))
    rows = [row(columns, _link_cells(link), data_link=n) for n, link in order[:SHOWN_MAX]]
    caption = f"Links with traffic{_of(len(rows), len(order), 'busiest')}"
    return table("links", caption, columns, rows, sorted_by=-2)


def _link_cells(link: Station) -> tuple:  # type: ignore[type-arg]
    return (
        text(link.name),
        share(link.utilisation),
        rate(link.rate_per_s),
        number(link.kb_per_s, volume(link.kb_per_s)),
        time(link.waiting_s),
        time(link.propagation_s),
        share(link.loss, 2),
        share(link.shed, 2),
    )


def _of(shown: int, total: int, which: str) -> str:
    return "" if shown == total else f": the {which} {shown:,} of {total:,}"


def worst(report: Report) -> Markup:
    """The subscriptions, the worst first, each with its reason."""
    columns = (
        Column("subscription"),
        Column("at", is_wide=True),
        Column("on time", True),
        Column("matched", True, True, hint="events that matched"),
        Column("deadline", True, True),
        Column("p50 delay", True, True, hint="median delay of events that arrived"),
        Column("p99 delay", True, True, hint="of events that arrived"),
        Column("why"),
    )
    rows = [row(columns, _subscription_cells(each), **_at(report, each)) for each in report.subscriptions]
    total, shown = report.headline.subscriptions, len(rows)
    note = "The table lists all subscriptions."
    if shown < total:
        note = f"The table lists the worst {shown:,} of {total:,} subscriptions; the sums, the map and the "
        note += "distribution above include all."
    causes = ", ".join(f"{cause} {number:,}" for cause, number in report.causes.items() if cause != "none")
    listed = f" Main causes of those in the table: {causes}." if causes else ""
    explained = "The reason is what costs most of the on-time share, computed from what was measured along the path: "
    explained += "mean waits, transmissions, losses and outages."
    return section(
        "worst",
        "Worst subscribers, and why",
        tag("p", note + listed),
        tag("p", explained, class_="quiet"),
        table("subscriptions", "Subscriptions, the worst first", columns, rows, sorted_by=2),
    )


def _at(report: Report, each: SubscriptionFigures) -> dict[str, str | float | None]:
    numbers = {station.name: n for n, station in enumerate(report.brokers)}
    return {"data_name": each.name, "data_broker": numbers.get(each.broker)}


def _subscription_cells(each: SubscriptionFigures) -> tuple:  # type: ignore[type-arg]
    return (
        picked(each.name),
        text(each.broker),
        bar(each.reliability),
        number(each.matched, f"{each.matched:,}"),
        time(each.max_delay_s),
        time(each.delay_p50_s),
        time(each.delay_p99_s),
        text(each.reason.words),
    )


def compared(report: Report) -> Markup:
    """Predicted against measured: a scatter (or counts by cell), and a table with the error."""
    title = "Predicted against measured"
    found = report.comparison
    if found is None:
        return absent(report, "comparison", "compared", title)
    marks = [(k / 5, f"{20 * k} %") for k in range(6)]
    chart = Chart(
        name="scatter",
        title="Predicted against measured on-time share",
        description=f"Mean difference {found.error:.4f} over {count(found.compared, 'subscription')}; on the diagonal "
        "both are equal.",
        x=Axis(label="measured on-time share", low=0.0, high=1.0, marks=marks),
        y=Axis(label="predicted", low=0.0, high=1.0, marks=marks),
    )
    diagonal = tag("path", d=chart.path([(0.0, 0.0), (1.0, 1.0)]), class_="diagonal")
    dots: list[Content] = []
    if found.points is not None:
        for seen, told, name in found.points:
            x, y = chart.at(seen, told)
            said = tag("title", f"{name}: measured {percent(seen)}, predicted {percent(told)}")
            dots.append(tag("circle", said, cx=x, cy=y, r=4.5, class_="point", data_name=name))
    else:
        dots = _cells(chart, found.counts)
    words = (
        f"R′ predicted from the profiles and R measured in the same run differ by {found.error:.4f} on average over "
    )
    words += f"{count(found.compared, 'subscription')}; sampling alone would cause {found.noise:.4f}. "
    words += f"For {found.inside:,} the prediction is inside the measured 95 % interval."
    words += "".join(f" {sentence}" for sentence in left_out(found.unmodelled))
    if found.scheme is not None:
        words += f" Outages count as they were measured, with the scenario's scheme ({found.scheme})."
    elif any(station.availability < 1.0 for station in report.stations):
        words += " Outages are not included: their effect depends on the scheme, which only the scenario names."
    return section(
        "compared",
        title,
        tag("p", words),
        tag("figure", chart.drawn(diagonal, tag("g", *dots)), class_="narrow"),
        _errors(report),
    )


def _cells(chart: Chart, counts: Sequence[Sequence[int]]) -> list[Content]:
    """Squares whose area says how many subscriptions are in a cell."""
    size, most = 1.0 / len(counts), max(max(line) for line in counts)
    full = chart.at(size, 0.0)[0] - chart.at(0.0, 0.0)[0]
    dots: list[Content] = []
    for i, line in enumerate(counts):
        for j, times in enumerate(line):
            if times:
                x, y = chart.at((i + 0.5) * size, (j + 0.5) * size)
                side = max(2.0, full * (times / most) ** 0.5)
                said = tag(
                    "title", f"{times:,} around measured {(i + 0.5) * size:.0%}, predicted {(j + 0.5) * size:.0%}"
                )
                dots.append(tag("rect", said, x=x - side / 2, y=y - side / 2, width=side, height=side, class_="point"))
    return dots


def _errors(report: Report) -> Markup:
    columns = (
        Column("subscription"),
        Column("at", is_wide=True),
        Column("measured", True),
        Column("95 % interval", True, True, hint="events that are late together count for less than independent ones"),
        Column("predicted", True),
        Column("error", True, hint="predicted minus measured"),
    )
    both = [each for each in report.subscriptions if each.reliability is not None and each.predicted is not None]
    rows = []
    for each in sorted(both, key=lambda each: -abs((each.predicted or 0.0) - (each.reliability or 0.0))):
        error = (each.predicted or 0.0) - (each.reliability or 0.0)
        cells = (
            picked(each.name),
            text(each.broker),
            share(each.reliability),
            number(each.low, f"{percent(each.low)} to {percent(each.high)}"),
            share(each.predicted),
            number(abs(error), f"{'+' if error >= 0 else '−'}{abs(error):.4f}"),
        )
        rows.append(row(columns, cells, **_at(report, each)))
    caption = f"The largest errors first{_of(len(rows), report.headline.heard, 'worst on-time')}"
    return table("errors", caption, columns, rows, sorted_by=-6)


def waterfall(report: Report) -> Markup:
    """Where the time goes; the script draws it for the subscription and publisher that are chosen."""
    title = "Where the time goes"
    if not any(report.journeys.values()):
        return absent(report, "waterfall", "waterfall", title)
    options = [tag("option", name, value=name) for name, own in report.journeys.items() if own]
    kinds = (
        ("waiting", "waiting"),
        ("service", "matching"),
        ("transmission", "transmission"),
        ("propagation", "propagation"),
    )
    words = "Station by station from the publisher to the subscription, as means over all events that passed "
    words += "there. The vertical line is the deadline."
    return section(
        "waterfall",
        title,
        tag("p", words, class_="quiet"),
        tag(
            "div",
            tag("label", "Subscription ", tag("select", *options, id="subscription")),
            tag("label", "Publisher ", tag("select", id="publisher")),
            class_="choice",
        ),
        legend(*kinds),
        tag("div", tag("noscript", "This part needs JavaScript."), id="way", aria_live="polite"),
    )
