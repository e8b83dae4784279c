"""The sections about remedies: single changes, moves, and schemes against failures."""

from collections.abc import Callable

from tidings.model.units import percent, points
from tidings.placement import Change as Figure
from tidings.placement import PlacementPlan
from tidings.report.figures import SHOWN_MAX, Change, Changes, Report, Schemes
from tidings.report.page._map import draw_moves
from tidings.report.page._markup import Content, Markup, joined, tag
from tidings.report.page._sections import absent, section
from tidings.report.page._tables import Cell, Column, bar, number, picked, row, share, table, text
from tidings.report.page._words import count, duration, left_out

__all__ = ["changed", "placed", "schemed"]

NAMES = {
    "periodic": "none",
    "buffer": "buffering",
    "bypass": "bypass",
    "bypass+buffer": "both",
}
TITLES = {
    "schemed": "Living with failures",
    "placed": "Where clients should be",
    "changed": "The effect of each change",
}
BENEFITS = {"load": "messages/s less", "delay": "delay saved, s/s", "on-time": "more on time, /s"}
BETTER = 0.0005  # a change that gains less than this counts as none


def schemed(report: Report) -> Markup:
    """R′ under each scheme."""
    found = report.schemes
    if found is None:
        return absent(report, "schemes", "schemed", TITLES["schemed"])
    source = "as they were measured" if found.source == "measured" else "of the scenario"
    words = f"The predicted on-time share under each scheme, with failures {source}. Without a scheme, events that "
    words += "meet a failed broker or link are lost; buffering stores them until it is back; bypass takes a "
    kept = "brokers keep them through a crash" if found.has_durable_tables else "a crash loses them until then"
    words += f"detour. Subscriptions are assumed to be refreshed every {duration(found.refresh_s)}; {kept}."
    words += "".join(f" {sentence}" for sentence in left_out(found.unmodelled))
    columns = (
        Column("scheme"),
        Column("on time", True),
        Column("messages/event", True, hint="of all kinds, for each published event"),
        Column("stored", True, True, hint="events stored in the whole network on average"),
    )
    rows = [
        row(
            columns,
            (
                text(NAMES[each.scheme]),
                bar(each.reliability),
                number(each.messages_per_event, f"{each.messages_per_event:,.3g}"),
                number(each.stored_events, "–" if each.stored_events is None else f"{each.stored_events:,.3g}"),
            ),
        )
        for each in found.schemes
    ]
    content: list[Content] = [tag("p", words)]
    content.append(table("schemes", "All deliveries, by scheme", columns, rows))
    for scheme, why in found.left_out.items():
        content.append(tag("p", f"{NAMES[scheme].capitalize()} could not be predicted: {why}.", class_="absent"))
    if found.schemes:
        content.append(_by_scheme(report, found))
    return section("schemed", TITLES["schemed"], *content)


def _by_scheme(report: Report, found: Schemes) -> Markup:
    columns = (Column("subscription"), *(Column(NAMES[each.scheme], True) for each in found.schemes))
    rows = []
    for each in report.subscriptions:
        shares = [scheme.by_subscription.get(each.name) for scheme in found.schemes]
        if any(value is not None for value in shares):
            rows.append(row(columns, (picked(each.name), *map(share, shares)), data_name=each.name))
    return table("by-scheme", "On-time share of each subscription, by scheme", columns, rows)


def placed(report: Report) -> Markup:
    """The moves of each change, then each plan: what it changes, and who moves."""
    changes = [] if report.changes is None else [each for each in report.changes.single if each.moves]
    if not report.plans and not changes:
        return absent(report, "placement", "placed", TITLES["placed"])
    content: list[Content] = []
    for place, change in enumerate(changes):
        content += _change_moves(report, change, f"change-moves-{place}")
    for place, (name, plan) in enumerate(report.plans):
        content += [
            tag("h3", f"{name}, objective {plan.aim.objective}"),
            _before_and_after(plan, place),
            tag(
                "figure",
                draw_moves(report, [(move.origin, move.target) for move in plan.moves], f"moves-{place}"),
                tag("figcaption", _who(plan)),
                class_="narrow",
            )
            if plan.moves
            else tag("p", "Every client is at the best broker."),
            _moves(plan, place) if plan.moves else None,
        ]
    return section("placed", TITLES["placed"], *content)


def _change_moves(report: Report, change: Change, name: str) -> list[Content]:
    now = change.reliability if report.changes is None else report.changes.now.reliability
    columns = (Column("client"), Column("from"), Column("to"))
    rows = [row(columns, (text(each.client), text(each.origin), text(each.target))) for each in change.moves]
    words = f"{count(len(change.moves), 'client')} would move. Deliveries on time: {percent(now)} now, "
    words += f"{percent(change.reliability)} then ({points(now, change.reliability)})."
    return [
        tag("h3", change.name[0].upper() + change.name[1:]),
        tag(
            "figure",
            draw_moves(report, [(each.origin, each.target) for each in change.moves], name),
            tag("figcaption", words),
            class_="narrow",
        ),
        table(f"{name}-table", "Moves", columns, rows[:SHOWN_MAX]),
    ]


def _who(plan: PlacementPlan) -> str:
    kinds = {kind: sum(move.client == kind for move in plan.moves) for kind in ("publisher", "subscriber")}
    moving = " and ".join(count(number, kind) for kind, number in kinds.items() if number)
    staying = " and ".join(count(number, kind) for kind, number in plan.stay.items() if number)
    return f"{moving} would move" + (f"; {staying} would stay." if staying else ".")


def _before_and_after(plan: PlacementPlan, place: int) -> Markup:
    columns = (Column("figure"), Column("now", True), Column("after", True), Column("change", True))
    figures: list[tuple[str, Figure, Callable[[float], str]]] = [
        ("messages that brokers handle, /s", plan.expected.messages_per_s, "{:,.4g}".format),
        ("mean delay, ms", plan.expected.delay_ms, "{:,.4g}".format),
        ("busiest broker", plan.expected.busiest, percent),
    ]
    if plan.expected.on_time is not None:
        figures.append(("on time", plan.expected.on_time, percent))
    rows = [
        row(
            columns,
            (
                text(name),
                number(figure.now, shown(figure.now)),
                number(figure.then, shown(figure.then)),
                _effect(figure, is_share=shown is percent),
            ),
        )
        for name, figure, shown in figures
    ]
    return table(f"plan-{place}", "Expected effect of all moves together", columns, rows)


def _effect(figure: Figure, *, is_share: bool) -> Cell:
    """By how much a figure changes: points for a share, per cent for any other."""
    if is_share:
        return number(figure.then - figure.now, points(figure.now, figure.then))
    return number(figure.share, f"{'+' if figure.share >= 0 else '−'}{percent(abs(figure.share))}")


def _moves(plan: PlacementPlan, place: int) -> Markup:
    columns = (
        Column("client"),
        Column("kind", is_wide=True),
        Column("from"),
        Column("to"),
        Column(BENEFITS[plan.aim.objective], True),
    )
    rows = [
        row(
            columns,
            (
                text(move.name),
                text(move.client),
                text(move.origin),
                text(move.target),
                number(move.benefit, f"{move.benefit:,.3g}"),
            ),
        )
        for move in plan.moves[:SHOWN_MAX]
    ]
    more = "" if len(rows) == len(plan.moves) else f": the first {len(rows):,} of {len(plan.moves):,}"
    return table(f"move-{place}", f"Moves, the best first{more}", columns, rows, sorted_by=-5)


def changed(report: Report) -> Markup:
    """The effect of single changes, and of all together."""
    found = report.changes
    if found is None:
        return absent(report, "changes", "changed", TITLES["changed"])
    every = [found.now, *found.single, *([found.together] if found.together is not None else [])]
    names = {id(found.now): "now", id(found.together): "all together"}
    columns = (
        Column("change"),
        Column("on time", True),
        Column("gain", True, hint="additional share of all deliveries on time"),
        Column("subscriptions with 99 %", True, True),
    )
    rows = [
        row(
            columns,
            (
                _named(names.get(id(each), each.name), each.description),
                bar(each.reliability),
                _gain(each, found.now),
                number(each.meeting, f"{each.meeting:,} of {found.compared:,}"),
            ),
        )
        for each in every
    ]
    return section(
        "changed",
        TITLES["changed"],
        table("changes", "On-time share of all deliveries", columns, rows),
        _by_change(report, found, every),
    )


def _named(name: str, description: str) -> Cell:
    more = tag("span", description, class_="quiet block") if description else None
    return Cell(joined(name, more), name.casefold())


def _gain(each: Change, now: Change) -> Cell:
    if each is now:
        return Cell("", None)
    return Cell(points(now.reliability, each.reliability), each.reliability - now.reliability)


def _by_change(report: Report, found: Changes, every: list[Change]) -> Markup:
    columns = (
        Column("subscription"),
        Column("now", True),
        *(Column(each.name, True, True) for each in found.single),
        *([Column("all together", True)] if found.together is not None else []),
        Column("best single change"),
    )
    rows = []
    for each in report.subscriptions:
        shares = [change.by_subscription.get(each.name) for change in every]
        if any(value is None for value in shares):
            continue
        best = max(found.single, key=lambda change: change.by_subscription[each.name], default=None)
        now = found.now.by_subscription[each.name]
        is_better = best is not None and best.by_subscription[each.name] > now + BETTER
        words = f"{best.name}: {percent(best.by_subscription[each.name])}" if best is not None and is_better else "none"
        rows.append(row(columns, (picked(each.name), *map(share, shares), text(words)), data_name=each.name))
    return table("by-change", joined("On-time share of each subscription"), columns, rows)
