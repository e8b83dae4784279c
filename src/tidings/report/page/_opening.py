"""The page's opening: what happened, in one figure, a few sentences and a row of facts."""

from tidings.report.figures import Headline, Report
from tidings.report.page._charts import histogram, legend, sparkline
from tidings.report.page._markup import Content, Markup, joined, tag
from tidings.report.page._words import count, duration, percent

__all__ = ["opening"]

REASONS_SHOWN = 4


def opening(report: Report) -> Markup:
    """The first section."""
    head = report.headline
    return tag(
        "section",
        tag("h2", "In short", id="in-short"),
        tag(
            "div",
            tag("div", _share(head), _sentences(head), _over_time(report), class_="lead"),
            _spread(report),
            class_="opening",
        ),
        _facts(head),
        aria_labelledby="in-short",
    )


def _share(head: Headline) -> Markup:
    if head.reliability is None:
        return tag("p", "Nothing matched any subscription.", class_="huge-none")
    kinds = (("on-time", head.on_time, "on time"), ("late", head.late, "late"), ("lost", head.lost, "lost"))
    parts = [tag("span", class_=f"part {kind}", style=f"flex-grow:{number}") for kind, number, _ in kinds if number]
    words = [(kind, f"{what} {percent(number / head.matched)} ({number:,})") for kind, number, what in kinds]
    return joined(
        tag("p", tag("span", percent(head.reliability), class_="huge"), " on time", class_="quiet"),
        tag("div", *parts, class_="split", aria_hidden="true"),
        legend(*words),
    )


def _sentences(head: Headline) -> Markup:
    said: list[Content] = [
        f"{count(head.events, 'event')} from {count(head.publishers, 'publisher')} matched "
        f"{head.matched:,} times at {count(head.subscriptions, 'subscription')}, over {duration(head.lasted_s)}. "
    ]
    if head.heard:
        said.append(
            f"{head.meeting:,} of {count(head.heard, 'subscription')} got 99 % or more of their events on time. "
        )
    if head.worst is not None:
        pick = tag("button", head.worst, type="button", class_="pick", data_name=head.worst)
        said += ["The worst is ", pick, f" with {percent(head.worst_reliability)}. "]
    if head.busiest is not None:
        said.append(f"The busiest station is {head.busiest}, busy {percent(head.busiest_utilisation)} of the time.")
    return joined(tag("p", *said), tag("p", _quarantine(head), class_="quiet"))


def _quarantine(head: Headline) -> str:
    if not head.bad:
        return f"All {head.rows:,} rows of the trace are valid; none is in quarantine."
    worst = list(head.quarantined.items())[:REASONS_SHOWN]
    reasons = ", ".join(f"{reason} {number:,}" for reason, number in worst)
    more = f", and {len(head.quarantined) - len(worst)} more reasons" if len(head.quarantined) > len(worst) else ""
    return f"{head.bad:,} of {head.rows:,} rows of the trace are in quarantine and not counted: {reasons}{more}."


def _over_time(report: Report) -> Markup | None:
    points = [(window.begins_s, window.on_time / window.matched) for window in report.windows if window.matched]
    if len(points) < 3:
        return None
    low, high = min(share for _, share in points), max(share for _, share in points)
    said = f"It varies between {percent(low)} and {percent(high)} from window to window."
    chart = sparkline(points, "On-time share over time", said)
    return tag("figure", chart, tag("figcaption", f"On-time share over time. {said}"))


def _facts(head: Headline) -> Markup:
    facts = (
        ("brokers", f"{head.brokers:,}"),
        ("links", f"{head.links:,}"),
        ("publishers", f"{head.publishers:,}"),
        ("subscriptions", f"{head.subscriptions:,}"),
        ("events", f"{head.events:,}"),
        ("deliveries expected", f"{head.matched:,}"),
    )
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")


def _spread(report: Report) -> Markup:
    keys = [("measured", "measured")]
    if report.predicted_bins is not None:
        keys.append(("predicted", "predicted"))
    head = report.headline
    note = f"All {count(head.heard, 'subscription')} with at least one match."
    return tag(
        "figure",
        histogram("spread", report.measured_bins, report.predicted_bins, "subscriptions"),
        legend(*keys),
        tag("figcaption", f"Number of subscriptions by on-time share. {note}"),
    )
