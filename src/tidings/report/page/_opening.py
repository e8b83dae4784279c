"""The page's opening: what is wrong, what to do first, who is affected; then the run in figures."""

from typing import Final

from tidings.model.units import percent, points
from tidings.report.figures import Advice, Headline, Report, missed_by_station
from tidings.report.page._charts import Axis, Bar, Chart, Line, draw, legend, share_ticks, ticks
from tidings.report.page._markup import Content, Markup, joined, tag
from tidings.report.page._words import LATENESS, count, duration

__all__ = ["opening"]

REASONS_SHOWN = 4
BLAMED_MIN = 0.1  # a station that costs a smaller part of the missed deliveries is not named
BASIS: Final = {
    "changes": "Of the changes that were tried, this one gains most.",
    "plan": "Expected by the plan; its moves are below.",
    "schemes": "Predicted from the measured outages.",
    "capacity": "Predicted from the profiles with this one change. "
    "Moves may gain more: `tidings place TRACE --objective on-time` looks for them.",
}


def opening(report: Report) -> Markup:
    """The first section."""
    head = report.headline
    return tag(
        "section",
        tag("h2", "What is wrong, and what to do first", id="in-short"),
        tag(
            "div",
            tag("div", _verdict(report), _first(report), _affected(report), class_="lead"),
            tag("div", _spread(report), _over_time(report)),
            class_="opening",
        ),
        _facts(head),
        tag("p", _quarantine(head), class_="quiet"),
        aria_labelledby="in-short",
    )


def _verdict(report: Report) -> Markup:
    head = report.headline
    if head.reliability is None:
        return tag("p", "No event matched any subscription.", class_="verdict")
    missed = head.matched - head.on_time
    if not missed:
        return tag("p", f"All {head.matched:,} deliveries were on time.", class_="verdict")
    kinds = (("l0", head.on_time, "on time"), ("l3", head.late, "late"), ("l4", head.lost, "lost or dropped"))
    parts = [tag("span", class_=f"part {kind}", style=f"flex-grow:{number}") for kind, number, _ in kinds if number]
    words = [(kind, f"{what} {percent(number / head.matched)}") for kind, number, what in kinds]
    return joined(
        tag(
            "p",
            tag("strong", percent(missed / head.matched), class_="huge"),
            f" of {head.matched:,} deliveries missed their deadline.",
            class_="verdict",
        ),
        tag("div", *parts, class_="split", aria_hidden="true"),
        legend(*words),
        tag("p", _why(report)),
    )


def _why(report: Report) -> str:
    """Deadlines that cannot be met, and the station that costs most deliveries; the larger cause first."""
    missed = sum(each.matched - each.on_time for each in report.subscriptions)
    found: list[tuple[int, str]] = []
    for number, cost in list(missed_by_station(report.subscriptions).items())[:1]:
        station = report.stations[number]
        words = f"lost their time at {station.kind} {station.name}, which is {percent(station.utilisation)} busy."
        found.append((cost, words))
    hopeless = [each for each in report.subscriptions if each.reason.cause == "deadline"]
    if hopeless:
        words = f"were for {count(len(hopeless), 'subscription')} whose deadline is shorter than the path takes "
        words += "without any waiting: only a shorter or faster path, or a longer deadline, helps there."
        found.append((sum(each.matched - each.on_time for each in hopeless), words))
    named = sorted((each for each in found if each[0] >= BLAMED_MIN * missed), reverse=True)
    shown = [f"{percent(cost / missed)} {words}" for cost, words in named]
    return " ".join(shown[:1]).replace(" %", " % of these", 1) + "".join(f" Another {each}" for each in shown[1:])


def _first(report: Report) -> Markup | None:
    head, advice = report.headline, report.advice
    if head.reliability is None or head.reliability >= 1.0:
        return None
    if advice is None:
        search = "None of the changes judged here would help. With a scenario of the network, "
        command = tag("code", "tidings plan SCENARIO --slo 99%")
        return tag("div", tag("h3", "Do this first"), tag("p", search, command, " searches further."), class_="first")
    return tag(
        "div",
        tag("h3", "Do this first"),
        tag("p", tag("strong", f"{advice.action}.")),
        tag("p", _effect(advice), " ", *_code(BASIS[advice.basis])),
        class_="first",
    )


def _effect(advice: Advice) -> str:
    gain = points(advice.now, advice.then)
    return f"Deliveries on time: {percent(advice.now)} now, {percent(advice.then)} then ({gain})."


def _code(text: str) -> list[Content]:
    """Text in which a command stands between backquotes."""
    return [tag("code", piece) if place % 2 else piece for place, piece in enumerate(text.split("`"))]


def _affected(report: Report) -> Markup | None:
    head = report.headline
    below = head.heard - head.meeting
    if head.worst is None or not below:
        return None
    worst = report.subscriptions[0]
    pick = tag("button", worst.name, type="button", class_="pick", data_name=worst.name)
    return tag(
        "p",
        f"{below:,} of {count(head.heard, 'subscription')} got less than 99 % on time. "
        f"The mean of all on-time shares is {percent(head.mean_reliability)}. The worst is ",
        pick,
        f" at {worst.broker} with {percent(worst.reliability)}. {worst.reason.words}",
    )


def _spread(report: Report) -> Markup:
    """The subscriptions by lateness; the chart is also the legend of the page's colours."""
    known = report.predicted_lateness
    most = max((*report.lateness, *(known or ()), 1))
    marks: list[Bar | Line] = []
    for step, number in enumerate(report.lateness):
        top = len(LATENESS) - step
        title = f"{LATENESS[step]} on time: {count(number, 'subscription')}"
        predicted = 0 if known is None else known[step]
        marks.append(
            Bar(
                start=(0.0, top - 0.15),
                end=(number, top - 0.85),
                style=f"l{step}",
                title=title,
                text=f"{number:,}",
                text_after=max(number, predicted),
            )
        )
        if known is not None:
            marks.append(Line(points=((predicted, top - 0.05), (predicted, top - 0.95)), style="predicted"))
    chart = Chart(
        name="spread",
        title="Number of subscriptions by on-time share",
        description=", ".join(f"{name}: {number:,}" for name, number in zip(LATENESS, report.lateness, strict=True)),
        x=Axis(
            low=0.0,
            high=float(most),
            label="subscriptions",
            ticks=tuple((value, f"{value:,.0f}") for value in ticks(float(most), 4) if value == int(value)),
        ),
        y=Axis(
            low=0.0,
            high=float(len(LATENESS)),
            has_grid=False,
            ticks=tuple((len(LATENESS) - step - 0.5, name) for step, name in enumerate(LATENESS)),
        ),
        marks=tuple(marks),
        width=460.0,
        height=250.0,
        margins=(106.0, 50.0, 6.0, 50.0),
    )
    note = "The colours mean the same on the whole page."
    if known is not None:
        note = f"The upright line is the predicted number. {note}"
    return tag("figure", draw(chart), tag("figcaption", f"Subscriptions by the share of their events on time. {note}"))


def _over_time(report: Report) -> Markup | None:
    windows = [(window.begins_s, window.on_time / window.matched) for window in report.windows if window.matched]
    if len(windows) < 3:
        return None
    low, high = min(share for _, share in windows), max(share for _, share in windows)
    last_s = windows[-1][0]
    unit_s, unit = (60.0, "min") if last_s >= 120.0 else (1.0, "s")
    bottom = min(0.9, max(0.0, int(10.0 * low - 0.5) / 10.0))
    chart = Chart(
        name="over-time",
        title="On-time share over time",
        description=f"Between {percent(low)} and {percent(high)}.",
        x=Axis(
            low=0.0,
            high=last_s,
            ticks=tuple((mark * unit_s, f"{mark:g} {unit}") for mark in ticks(last_s / unit_s, 4)),
        ),
        y=Axis(low=bottom, high=1.0, ticks=share_ticks(bottom)),
        marks=(Line(points=tuple(windows), style="curve"),),
        width=460.0,
        height=150.0,
        margins=(106.0, 30.0, 12.0, 30.0),
    )
    words = f"On-time share over time, between {percent(low)} and {percent(high)}."
    return tag("figure", draw(chart), tag("figcaption", words))


def _facts(head: Headline) -> Markup:
    facts = (
        ("brokers", f"{head.brokers:,}"),
        ("links", f"{head.links:,}"),
        ("publishers", f"{head.publishers:,}"),
        ("subscriptions", f"{head.subscriptions:,}"),
        ("events", f"{head.events:,}"),
        ("deliveries expected", f"{head.matched:,}"),
        ("observed for", duration(head.lasted_s)),
        ("busiest", "–" if head.busiest is None else f"{head.busiest}, {percent(head.busiest_utilisation)}"),
    )
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")


def _quarantine(head: Headline) -> str:
    if not head.bad:
        return f"All {head.rows:,} rows of the trace are valid; none is in quarantine."
    worst = list(head.quarantined.items())[:REASONS_SHOWN]
    reasons = ", ".join(f"{reason} {number:,}" for reason, number in worst)
    more = f", and {len(head.quarantined) - len(worst)} more reasons" if len(head.quarantined) > len(worst) else ""
    return f"{head.bad:,} of {head.rows:,} rows of the trace are in quarantine and not counted: {reasons}{more}."
