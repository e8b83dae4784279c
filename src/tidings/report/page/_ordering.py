"""The section about order: the probability of disorder against the time that events are held."""

from tidings.model.units import percent
from tidings.report.figures import Ordering, Report
from tidings.report.page._charts import Axis, Chart, Line, Mark, Point, draw, legend, path_of, ticks
from tidings.report.page._markup import Content, Markup, tag
from tidings.report.page._sections import absent, section
from tidings.report.page._tables import Column, number, row, share, table, text, time
from tidings.report.page._words import duration

__all__ = ["curve_paths", "ordered"]

LEAST_CHANCE = 1e-4  # the bottom of the chart


def ordered(report: Report) -> Markup:
    """The price of order: the probability of disorder against the time that events are held."""
    title = "What order would cost"
    found = report.ordering
    if found is None:
        return absent(report, "ordering", "ordered", title)
    words = (
        "Receivers can restore the order of a publisher's events by holding those that arrive ahead of a gap. The "
        "curve shows the probability that an event still arrives after a later one, by how long receivers hold: two "
        "Laplacians fitted to the delay differences of each pair. Without holding, "
        f"{percent(found.measured, 2)} of the events arrived out of order. The curve is an upper bound, because "
        "queues keep order and the fitted distribution does not account for that."
    )
    keys = [("curve-key", "all subscriptions"), ("chosen-key", "the selected subscription"), ("seen-key", "measured")]
    if found.replayed:
        keys.append(("policy-key", "a policy, replayed"))
    content: list[Content] = [
        tag("p", words),
        tag("figure", draw(_chart(found)), legend(*keys), tag("figcaption", id="chosen-name"), class_="narrow"),
    ]
    if found.replayed:
        columns = (Column("policy"), Column("out of order", True), Column("mean hold", True), Column("received", True))
        rows = [
            row(
                columns,
                (
                    text(point.policy),
                    share(point.disorder, 3),
                    time(point.hold_s),
                    number(point.received, f"{point.received:,}"),
                ),
            )
            for point in found.replayed
        ]
        content.append(table("policies", "Policies, replayed over the trace", columns, rows, sorted_by=2))
    else:
        hint = "To see what policies would do with the deliveries of this trace: "
        command = tag("code", "tidings order replay TRACE --out orders")
        content.append(tag("p", hint, command, ", then ", tag("code", "tidings report DIR --orders orders"), "."))
    return section("ordered", title, *content)


def _chart(found: Ordering) -> Chart:
    longest_ms = 1e3 * max((found.holds_s[-1], *(point.hold_s for point in found.replayed)))
    highest = max((*found.curve, found.measured, *(max(curve) for curve in found.curves.values()), 10 * LEAST_CHANCE))
    top = next(power for power in (1e-3, 1e-2, 1e-1, 1.0) if power >= min(highest, 1.0))
    marks: list[Mark] = [
        Line(points=tuple(zip(found.holds_s, found.curve, strict=True)), style="curve"),
        Line(points=(), style="curve chosen", id="chosen-curve"),
    ]
    if found.measured > 0.0:
        title = f"measured without holding: {percent(found.measured, 2)} out of order"
        marks.append(Point(at=(0.0, found.measured), style="seen", title=title, size=10.0, is_square=True))
    for each in found.replayed:
        title = f"{each.policy}: {percent(each.disorder, 2)} out of order, held {duration(each.hold_s)}"
        at = (each.hold_s, each.disorder)
        marks.append(Point(at=at, style="policy", title=title, size=11.0, text=each.policy))
    decades = [power for power in (1e-4, 1e-3, 1e-2, 1e-1, 1.0) if power <= top]
    return Chart(
        name="order",
        title="Probability of disorder against the time that events are held",
        description=f"Without holding {percent(found.curve[0], 2)} by the distribution and "
        f"{percent(found.measured, 2)} measured; after {longest_ms:.3g} ms {percent(found.curve[-1], 3)}.",
        x=Axis(
            label="hold behind a gap, ms",
            low=0.0,
            high=longest_ms / 1e3,
            ticks=tuple((mark / 1e3, f"{mark:g}") for mark in ticks(longest_ms, 6)),
        ),
        y=Axis(
            label="probability of disorder",
            low=LEAST_CHANCE,
            high=top,
            ticks=tuple((power, f"{100 * power:g} %") for power in decades),
            is_log=True,
        ),
        marks=tuple(marks),
    )


def curve_paths(found: Ordering) -> dict[str, tuple[str, str]]:
    """By subscription: the curve as a path of the chart, and the probability of disorder without holding."""
    chart = _chart(found)
    return {
        name: (path_of(chart, zip(found.holds_s, curve, strict=True)), percent(curve[0], 2))
        for name, curve in found.curves.items()
    }
