"""The section about order: the chance of disorder against the time that events are held."""

from tidings.report.figures import Ordering, Report
from tidings.report.page._charts import Axis, Chart, legend, ticks
from tidings.report.page._labels import place_labels
from tidings.report.page._markup import Content, Markup, tag
from tidings.report.page._sections import absent, section
from tidings.report.page._tables import Column, number, row, share, table, text, time
from tidings.report.page._words import duration, percent

__all__ = ["curve_paths", "ordered"]

LEAST_CHANCE = 1e-4  # the bottom of the chart


def ordered(report: Report) -> Markup:
    """The trade-off of order: chance of disorder against the time that events are held."""
    title = "What order would cost"
    found = report.ordering
    if found is None:
        return absent(report, "ordering", "ordered", title)
    chart = _order_chart(found)
    lines: list[Content] = [
        tag("path", d=chart.path(zip(found.holds_s, found.curve, strict=True)), class_="curve"),
        tag("path", id="chosen-curve", class_="curve chosen"),
    ]
    x, y = chart.at(0.0, found.measured)
    said = tag("title", f"measured without holding: {percent(found.measured, 2)} out of order")
    if found.measured > 0.0:
        lines.append(tag("rect", said, x=x - 5, y=y - 5, width=10.0, height=10.0, class_="seen"))
    points = [chart.at(point.hold_s, point.disorder) for point in found.replayed]
    texts = [point.policy for point in found.replayed]
    labels = place_labels(points, texts, clear=6.0, sides=("right", "lower right", "upper right"))
    for point, (x, y), label in zip(found.replayed, points, labels, strict=True):
        told = f"{point.policy}: {percent(point.disorder, 2)} out of order, held {duration(point.hold_s)}"
        lines.append(tag("circle", tag("title", told), cx=x, cy=y, r=5.5, class_="policy"))
        lines.append(tag("text", point.policy, x=label.x, y=label.y, text_anchor=label.anchor))
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
        tag("figure", chart.drawn(*lines), legend(*keys), tag("figcaption", id="chosen-name"), class_="narrow"),
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


def _order_chart(found: Ordering) -> Chart:
    longest_ms = 1e3 * max((found.holds_s[-1], *(point.hold_s for point in found.replayed)))
    highest = max((*found.curve, found.measured, *(max(curve) for curve in found.curves.values()), 10 * LEAST_CHANCE))
    top = next(power for power in (1e-3, 1e-2, 1e-1, 1.0) if power >= min(highest, 1.0))
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
            marks=[(mark / 1e3, f"{mark:g}") for mark in ticks(longest_ms, 6)],
        ),
        y=Axis(
            label="probability of disorder",
            low=LEAST_CHANCE,
            high=top,
            marks=[(power, f"{100 * power:g} %") for power in decades],
            is_log=True,
        ),
    )


def curve_paths(found: Ordering) -> dict[str, tuple[str, str]]:
    """The curve of each subscription as the script puts it into the chart, and its chance without holding."""
    chart = _order_chart(found)
    return {
        name: (chart.path(zip(found.holds_s, curve, strict=True)), percent(curve[0], 2))
        for name, curve in found.curves.items()
    }
