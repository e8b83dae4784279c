"""Sections of the page, one function each; a section without data is a sentence with the command that adds it."""

from collections.abc import Iterator

from tidings.model.units import percent, points
from tidings.report.figures import SHOWN_MAX, Comparison, Report, Section, Station, SubscriptionFigures
from tidings.report.page._charts import Axis, Chart, Line, Point, draw, legend, share_ticks
from tidings.report.page._map import draw_map
from tidings.report.page._markup import Content, Markup, tag
from tidings.report.page._tables import Cell, Column, bar, number, picked, rate, row, share, table, text, time
from tidings.report.page._words import LATENESS, count, lateness, left_out, volume

CELL_WIDTH = 21.0  # of a full cell of the scatter plot, in units of the picture

__all__ = ["absent", "compared", "overlay", "section", "waterfall", "worst"]


def section(name: str, title: str, *content: Content, class_: str | None = None) -> Markup:
    return tag("section", tag("h2", title, id=name), *content, class_=class_, aria_labelledby=name)


def absent(report: Report, what: Section, name: str, title: str) -> Markup:
    """A section without data. Text between backquotes is a command."""
    pieces = report.missing.get(what, "").split("`")
    words = [tag("code", piece) if place % 2 else piece for place, piece in enumerate(pieces)]
    return section(name, title, tag("p", *words, class_="absent"), class_="no-data")


def overlay(report: Report) -> Markup:
    """The map, the figures of what is under the pointer, and all stations in tables."""
    content: list[Content] = []
    if "map" in report.missing:
        content.append(tag("p", report.missing["map"], class_="absent"))
    else:
        words = "A broker has the colour of the on-time share of its subscriptions, a link that of the deliveries "
        words += "whose path it is on. A link is as wide as its traffic."
        hint = " Point at a broker or link, or use Tab and the arrow keys, to see its figures. Choose one (click, or "
        hint += "Enter) to limit all tables to it."
        content += [
            tag("p", words, tag("span", hint, class_="no-print"), class_="quiet"),
            tag(
                "div",
                draw_map(report),
                tag(
                    "div",
                    legend(
                        *((f"l{step}", f"{what} on time") for step, what in enumerate(LATENESS)),
                        ("unknown", "no deliveries"),
                        ("busy-key", "80 % busy or more"),
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
    return section("overlay", "Where it happens", *content)


def _brokers(report: Report) -> Markup:
    columns = (
        Column("broker"),
        Column("on time", True, hint="on-time share of its subscriptions"),
        Column("busy", True),
        Column("arrivals", True, True),
        Column("waiting", True, hint="mean time that an event waits here"),
        Column("matching", True, True, hint="mean time that the broker processes an event"),
        Column("up", True, True, hint="share of the time without an outage"),
        Column("subscriptions", True, True),
    )
    order = sorted(range(len(report.places)), key=lambda n: (-report.stations[n].utilisation, report.stations[n].name))
    rows = []
    for n in order[:SHOWN_MAX]:
        station, place = report.stations[n], report.places[n]
        cells = (
            text(station.name),
            bar(place.on_time / place.matched if place.matched else None),
            share(station.utilisation),
            rate(station.rate_per_s),
            time(station.waiting_s),
            time(station.service_s),
            share(station.availability, 2),
            number(place.subscriptions, f"{place.subscriptions:,}"),
        )
        rows.append(row(columns, cells, data_broker=n))
    return table("brokers", f"Brokers{_of(len(rows), len(order), 'busiest')}", columns, rows, sorted_by=-3)


def _links(report: Report) -> Markup:
    columns = (
        Column("link"),
        Column("on time", True, hint="on-time share of the deliveries whose path it is on"),
        Column("busy", True),
        Column("events", True, True),
        Column("volume", True, True),
        Column("waiting", True, hint="mean time that an event waits to be sent"),
        Column("propagation", True, True),
        Column("lost", True, True),
        Column("expired", True, True, hint="share of events that expired in the queue"),
    )
    used = [(len(report.places) + n, link) for n, link in enumerate(report.links) if link.rate_per_s > 0.0]
    order = sorted(used, key=lambda item: (-item[1].utilisation, -item[1].kb_per_s, item[1].name))
    rows = [row(columns, _link_cells(link), data_link=n) for n, link in order[:SHOWN_MAX]]
    caption = f"Links with traffic{_of(len(rows), len(order), 'busiest')}"
    return table("links", caption, columns, rows, sorted_by=-3)


def _link_cells(link: Station) -> tuple[Cell, ...]:
    return (
        text(link.name),
        bar(link.on_time),
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
        Column("median delay", True, True, hint="of events that arrived"),
        Column("p99 delay", True, True, hint="99 % of the events that arrived took less"),
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
    explained = "The reason is what costs a subscription most of its on-time share, by the mean waits, transmissions, "
    explained += "losses and outages measured along the path."
    return section(
        "worst",
        "Who is affected, and why",
        tag("p", note + listed),
        tag("p", explained, class_="quiet"),
        table("subscriptions", "Subscriptions, the worst first", columns, rows, sorted_by=2),
    )


def _at(report: Report, each: SubscriptionFigures) -> dict[str, str | float | None]:
    numbers = {station.name: n for n, station in enumerate(report.brokers)}
    return {"data_name": each.name, "data_broker": numbers.get(each.broker)}


def _subscription_cells(each: SubscriptionFigures) -> tuple[Cell, ...]:
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
    outside = found.compared - found.inside
    words = f"R′ predicted from the profiles and R measured in the same run differ by {_points(found.error)} on "
    words += (
        f"average over {count(found.compared, 'subscription')}; sampling alone would cause {_points(found.noise)}. "
    )
    words += f"{found.inside:,} predictions are inside the measured 95 % interval."
    if outside:
        words += f" {outside:,} are outside: there the model is wrong by more than noise, and the table marks them."
    words += "".join(f" {sentence}" for sentence in left_out(found.unmodelled))
    if found.scheme is not None:
        words += f" Outages count as they were measured, with the scenario's scheme ({found.scheme})."
    elif any(station.availability < 1.0 for station in report.stations):
        words += " Outages are not included: their effect depends on the scheme, which only the scenario names."
    return section(
        "compared",
        title,
        tag("p", words),
        tag("figure", draw(_scatter(found)), class_="narrow"),
        _errors(report),
    )


def _points(difference: float) -> str:
    return f"{100.0 * difference:.1f} points"


def _scatter(found: Comparison) -> Chart:
    return Chart(
        name="scatter",
        title="Predicted against measured on-time share",
        description=f"Mean difference {_points(found.error)} over {count(found.compared, 'subscription')}; on the "
        "diagonal both are equal.",
        x=Axis(label="measured on-time share", low=0.0, high=1.0, ticks=share_ticks()),
        y=Axis(label="predicted", low=0.0, high=1.0, ticks=share_ticks()),
        marks=(Line(points=((0.0, 0.0), (1.0, 1.0)), style="diagonal"), *_dots(found)),
    )


def _dots(found: Comparison) -> Iterator[Point]:
    """A circle for each subscription; if there are too many, squares whose area is their number in a cell."""
    for measured, predicted, name in found.points or ():
        title = f"{name}: measured {percent(measured)}, predicted {percent(predicted)}"
        yield Point(at=(measured, predicted), style=f"point {lateness(measured)}", title=title, name=name)
    if found.points is not None:
        return
    step, most = 1.0 / len(found.counts), max(max(line) for line in found.counts)
    for i, line in enumerate(found.counts):
        for j, times in enumerate(line):
            if times:
                at = (i + 0.5) * step, (j + 0.5) * step
                yield Point(
                    at=at,
                    style=f"point {lateness(at[0])}",
                    title=f"{times:,} around measured {at[0]:.0%}, predicted {at[1]:.0%}",
                    size=max(2.0, CELL_WIDTH * (times / most) ** 0.5),
                    is_square=True,
                )


def _errors(report: Report) -> Markup:
    columns = (
        Column("subscription"),
        Column("at", is_wide=True),
        Column("measured", True),
        Column("95 % interval", True, True, hint="events that are late together count for less than independent ones"),
        Column("predicted", True),
        Column("error", True, hint="predicted minus measured, in points"),
        Column("interval", is_wide=True, hint="whether the prediction is inside the measured interval"),
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
            number(abs(error), points(each.reliability or 0.0, each.predicted or 0.0).removesuffix(" points")),
            text("inside" if (each.low or 0.0) <= (each.predicted or 0.0) <= (each.high or 0.0) else "outside"),
        )
        rows.append(row(columns, cells, **_at(report, each)))
    caption = f"Errors in points, the largest first{_of(len(rows), report.headline.heard, 'worst on-time')}"
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
    words += "there. The vertical line is the deadline; to its right an event is late."
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
        legend(*kinds, ("over", "after the deadline")),
        tag("div", tag("noscript", "This part needs JavaScript."), id="journey", aria_live="polite"),
    )
