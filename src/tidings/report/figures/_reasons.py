"""Why a subscription is not on time, in words: the one cause that costs it most of its events.

Of the journey that costs a subscription most of its on-time share, what was not on time is split by what was measured:

- losses: what its links lose;
- failures: what else did not arrive, if something on the path was down at times. If links also drop what expires, no
  more than the share of time that something was down;
- delay: the rest, late or dropped as too late.

If delay is the largest part, the stations of the path are compared. Waiting for something that is down is a failure
too. A path that takes longer than the deadline even without waiting is a slow station if one station takes most of it
and the rest would fit; otherwise it is a deadline that cannot be met. If no station takes a third of the time, the path
is long.
"""

import math
from collections.abc import Sequence

from tidings.model.units import percent, shown_time
from tidings.report.figures._journeys import Part, parts_of
from tidings.report.figures._report import Cause, Journey, Reason, Station

__all__ = ["reason_of"]

ALL = 0.9995
"""From this share on, nothing is missing that needs a reason."""
BUSY = 0.9  # a busier station makes events wait by itself, with failures or without
MOST = 1 / 3  # a station that takes less than this of the time is not worth naming


def reason_of(reliability: float | None, journeys: Sequence[Journey], stations: Sequence[Station]) -> Reason:
    """`reliability` is None where nothing matched."""
    if reliability is None:
        return Reason(cause="none", words="No published event matches it.")
    if reliability >= ALL:
        return Reason(cause="none", words="Its events arrive on time.")
    known = [journey for journey in journeys if journey.stations]
    if not known:
        return Reason(cause="none", words="The path of its events is not known.")
    worst = max(known, key=lambda journey: journey.share * (1.0 - journey.on_time))
    costs = _costs(worst, stations)
    cause = max(costs, key=lambda name: costs[name])
    if cause == "losses":
        return _losses(worst, stations)
    if cause == "failures":
        return _failures(worst, stations, costs[cause])
    return _delay(worst, stations)


def _costs(journey: Journey, stations: Sequence[Station]) -> dict[str, float]:
    """The shares of its events that delay, failures and losses cost; of equal ones, the first wins."""
    path = [stations[number] for number in journey.stations]
    gone = 1.0 - journey.arrived
    losses = min(gone, 1.0 - math.prod(1.0 - station.loss for station in path))
    rest = gone - losses
    down = 1.0 - math.prod(station.availability for station in path)
    failures = 0.0 if down <= 0.0 else min(rest, down) if any(station.shed for station in path) else rest
    return {"delay": journey.arrived - journey.on_time + rest - failures, "failures": failures, "losses": losses}


def _losses(journey: Journey, stations: Sequence[Station]) -> Reason:
    number = max(journey.stations, key=lambda number: stations[number].loss)
    worst = stations[number]
    words = f"{percent(worst.loss)} of the events sent over {worst.name} are lost."
    return Reason(cause="losses", words=words, station=number)


def _failures(journey: Journey, stations: Sequence[Station], cost: float) -> Reason:
    failing = [number for number in journey.stations if stations[number].availability < 1.0]
    number = min(failing, key=lambda number: stations[number].availability)
    worst = stations[number]
    named, most = _named(worst), ", the most of all on the path" if len(failing) > 1 else ""
    return Reason(
        cause="failures",
        words=f"{named[0].upper()}{named[1:]} was down {percent(1.0 - worst.availability)} of the time{most}; "
        f"{percent(cost)} of the events from {journey.publisher} are lost in outages.",
        station=number,
    )


def _delay(journey: Journey, stations: Sequence[Station]) -> Reason:
    parts = parts_of(journey, stations)
    total_s, empty_s = sum(part.total_s for part in parts), sum(part.empty_s for part in parts)
    waits, works = max(parts, key=lambda part: part.waiting_s), max(parts, key=lambda part: part.empty_s)
    allowed_s = journey.allowed_s
    if allowed_s is not None and empty_s >= allowed_s:
        is_alone = works.empty_s >= 0.5 * empty_s and empty_s - works.empty_s < allowed_s
        if not is_alone or len(parts) == 1:
            return Reason(
                cause="deadline",
                words=f"Its deadline of {shown_time(allowed_s)} is shorter than the path from "
                f"{journey.publisher}, which takes {shown_time(empty_s)} over {_links(parts, stations)} without any "
                "waiting.",
            )
        return _slow(works, total_s, allowed_s, stations[works.station])
    if max(waits.waiting_s, works.empty_s) < MOST * total_s:
        links = _links(parts, stations)
        return Reason(
            cause="long path",
            words=f"The path from {journey.publisher} takes {shown_time(total_s)} on average over {links}, "
            f"{shown_time(total_s - empty_s)} of it waiting{_allowed(allowed_s)}.",
            station=max(parts, key=lambda part: part.total_s).station,
        )
    if waits.waiting_s >= works.empty_s:
        return _waits(waits, total_s, allowed_s, stations)
    return _slow(works, total_s, allowed_s, stations[works.station])


def _waits(part: Part, total_s: float, allowed_s: float | None, stations: Sequence[Station]) -> Reason:
    station = stations[part.station]
    behind = [station, stations[station.target]]
    down = min(behind, key=lambda each: each.availability)
    spent = f"An event waits {_of(part.waiting_s, total_s)} {'at' if station.kind == 'broker' else 'for'} "
    spent += _named(station)
    if down.availability < 1.0 and station.utilisation < BUSY:
        which = "which" if down is station else f"while {_named(down)}"
        words = f"{spent}, {which} was down {percent(1.0 - down.availability)} of the time{_allowed(allowed_s)}."
        return Reason(cause="failures", words=words, station=part.station)
    cause: Cause = "busy broker" if station.kind == "broker" else "busy link"
    words = f"{spent}, which is {percent(station.utilisation)} busy{_allowed(allowed_s)}."
    return Reason(cause=cause, words=words, station=part.station)


def _slow(part: Part, total_s: float, allowed_s: float | None, station: Station) -> Reason:
    spent = _of(part.empty_s, total_s)
    if station.kind == "broker":
        words = f"Matching takes {spent} at {_named(station)}{_allowed(allowed_s)}."
        return Reason(cause="slow broker", words=words, station=part.station)
    what = "sending" if part.transmission_s >= part.propagation_s else "propagation"
    words = f"An event spends {spent} on {_named(station)}, most of it {what}{_allowed(allowed_s)}."
    return Reason(cause="slow link", words=words, station=part.station)


def _links(parts: Sequence[Part], stations: Sequence[Station]) -> str:
    count = sum(stations[part.station].kind == "link" for part in parts)
    return "1 link" if count == 1 else f"{count} links"


def _named(station: Station) -> str:
    return f"{station.kind} {station.name}"


def _allowed(allowed_s: float | None) -> str:
    return "" if allowed_s is None else f"; the deadline is {shown_time(allowed_s)}"


def _of(part_s: float, total_s: float) -> str:
    """The part of a whole in the whole's unit: "380 of its 520 ms" if they have the same."""
    whole, part = shown_time(total_s), shown_time(part_s)
    unit = whole.rpartition(" ")[2]
    return f"{part.removesuffix(f' {unit}')} of its {whole}"
