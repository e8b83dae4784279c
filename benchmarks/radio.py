"""What arrives in time over a recorded radio link: Tidings beside five other brokers (docs/benchmarks/radio.md).

The same publisher beside each broker, the same subscribers at one site, and between the two a link that replays a
recorded LTE or UMTS capacity (`radio_link`): the last hop, for all brokers alike. Alarms and telemetry always, bulk in
the second and the last quarter (`radio_load`). The brokers and their settings are in `radio_peers`; all play at the
same time, each in processes of its own, with a link of its own. The limit is the most that any schedule could have
done (`radio_limit`).

- `alarm` to `bulk`: the share of the events of a class that came within their deadline, by one clock, from when an
  event was due to be published. `urgent*`: of the urgent ones while bulk is published.
- `value`: the prices of what came in time, by those of all; `of limit`: by the limit.
- `age`: of the telemetry that was delivered, in time or not: median and 99th percentile, in s.
- `recovery`: after an outage of the link (OUTAGE_S without a moment), until ENOUGH of the alarms and urgent events of
  a second are in time, or as many as can be: median and longest, in s; `never`: of so many outages not at all before
  the next one.
- `carried`: the bytes that crossed the link, by those of the payloads that were delivered.
- `late`: the machine's part: by how much later than it should a packet arrived (99th percentile, in ms).

Set by environment variables: TRACES="name@begin,..." (recordings of TIDINGS_DATA/lte_capacity, or paths; from this
second on), NAMES="tidings,mosquitto", LENGTH_S=100, BACK=1 (the other direction replays the recording of the same
ride, `.up` for `.down`; otherwise it is free but for the delay), OUT=DIRECTORY (figures as PNG, and all figures as
JSON). Brokers that keep something on disk do it in TMPDIR.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.radio_limit import share_limit, value_limit
from benchmarks.radio_link import TraceError
from benchmarks.radio_load import CLASSES, Event, bulk_phases
from benchmarks.radio_peers import BROKERS
from benchmarks.radio_player import Job, Record, capacity

__all__ = ["Limits", "Result", "limits_of", "main", "outages_of", "recoveries_s", "result_of"]

TRACES = "ATT-LTE-driving-2016.down,TMobile-UMTS-driving.down"
OUTAGE_S = 0.8
ENOUGH = 0.9
URGENT = {kind for kind, each in enumerate(CLASSES) if each.deadline_s <= 1.0}
HEAD_START_S = 1.0


class Limits(NamedTuple):
    """What no broker can exceed."""

    on_time: list[float]
    """Of each class, if the link carries nothing else."""
    urgent_in_bulk: float
    value: float


class Result(NamedTuple):
    """What one broker made of one recording."""

    on_time: list[float]
    urgent_in_bulk: float
    value: float
    age_s: tuple[float, float]
    recoveries_s: list[float | None]
    carried: float
    used: float
    record: Record


def main() -> None:
    """Play all recordings, and print a table for each."""
    length_s = float(os.environ.get("LENGTH_S", "100"))
    names = [name for name in os.environ.get("NAMES", ",".join(BROKERS)).split(",") if name]
    if unknown := sorted({*names} - {*BROKERS}):
        raise SystemExit(f"there is no broker {unknown[0]!r}; there are: {', '.join(BROKERS)}")
    out = os.environ.get("OUT")
    for text in os.environ.get("TRACES", TRACES).split(","):
        trace, _, begin = text.partition("@")
        back = trace.replace(".down", ".up") if os.environ.get("BACK", "") not in ("", "0") else ""
        job = Job("", trace, float(begin or "0"), length_s, back)
        try:
            moments_s, events = capacity(job)
        except TraceError as error:
            raise SystemExit(f"radio: {error}") from None
        records = play(job, names)
        results = {name: result_of(record, job, moments_s, events) for name, record in records.items()}
        limits = limits_of(job, moments_s, events)
        _print(job, moments_s, events, limits, results)
        if out:
            write(Path(out), job, moments_s, events, limits, results)


# -- playing -------------------------------------------------------------------------------------------------------


def play(job: Job, names: Sequence[str]) -> dict[str, Record]:
    """All brokers at the same time; those that are not installed are named and passed over."""
    players: dict[str, subprocess.Popen[str]] = {}
    root = Path(__file__).resolve().parent.parent
    try:
        for name in names:  # one after the other: starting takes more of the machine than playing
            players[name] = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.radio_player"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=root,
            )
            _say(players[name], msgspec.json.encode(msgspec.structs.replace(job, name=name)).decode())
            if (answer := _heard(players[name])) != "ready":
                print(f"{'':8}{name} is passed over: {answer or 'it failed, see above'}", flush=True)
                players.pop(name).wait()
        begin_s = time.monotonic() + HEAD_START_S
        for player in players.values():
            _say(player, str(begin_s))
        heard = {name: _heard(player) for name, player in players.items()}
        return {name: msgspec.json.decode(text, type=Record) for name, text in heard.items() if text}
    finally:
        for player in players.values():
            for end in (player.stdin, player.stdout):
                if end is not None:
                    end.close()
            player.wait()


def _say(player: "subprocess.Popen[str]", line: str) -> None:
    assert player.stdin is not None
    player.stdin.write(line + "\n")
    player.stdin.flush()


def _heard(player: "subprocess.Popen[str]") -> str:
    assert player.stdout is not None
    return player.stdout.readline().strip()


# -- counting ------------------------------------------------------------------------------------------------------


def is_on_time(event: Event, record: Record) -> bool:
    """Whether an event came within its deadline."""
    return event.number in record.came_s and record.came_s[event.number] <= event.due_s


def share(events: Sequence[Event], record: Record) -> float:
    """The share of events that were on time; 1 if there are none."""
    return sum(is_on_time(event, record) for event in events) / len(events) if events else 1.0


def urgent_in_bulk(events: Sequence[Event], length_s: float) -> list[Event]:
    """The urgent events that are published while bulk is."""
    phases = bulk_phases(length_s)
    urgent = [event for event in events if CLASSES[event.kind].name == "urgent"]
    return [event for event in urgent if any(begin_s <= event.at_s < end_s for begin_s, end_s in phases)]


def limits_of(job: Job, moments_s: Sequence[float], events: Sequence[Event]) -> Limits:
    """The bounds of a recording."""
    groups = [[event for event in events if event.kind == kind] for kind in range(len(CLASSES))]
    return Limits(
        on_time=[share_limit(group, moments_s) for group in groups],
        urgent_in_bulk=share_limit(urgent_in_bulk(events, job.length_s), moments_s),
        value=value_limit(events, moments_s),
    )


def result_of(record: Record, job: Job, moments_s: Sequence[float], events: Sequence[Event]) -> Result:
    """Count what came."""
    telemetry = [event for event in events if CLASSES[event.kind].name in ("urgent", "routine")]
    ages_s = sorted(record.came_s[each.number] - each.at_s for each in telemetry if each.number in record.came_s)
    by_number = {event.number: event for event in events}
    delivered_bytes = sum(CLASSES[by_number[number].kind].payload_bytes for number in record.came_s)
    return Result(
        on_time=[share([event for event in events if event.kind == kind], record) for kind in range(len(CLASSES))],
        urgent_in_bulk=share(urgent_in_bulk(events, job.length_s), record),
        value=sum(CLASSES[event.kind].price for event in events if is_on_time(event, record)),
        age_s=(ages_s[len(ages_s) // 2], ages_s[len(ages_s) * 99 // 100]) if ages_s else (0.0, 0.0),
        recoveries_s=recoveries_s(record, job.length_s, moments_s, events),
        carried=record.carried_bytes / max(delivered_bytes, 1),
        used=record.used / len(moments_s),
        record=record,
    )


def outages_of(moments_s: Sequence[float], length_s: float) -> list[tuple[float, float]]:
    """When the link carried nothing for OUTAGE_S or longer."""
    gaps = pairwise([0.0, *(moment_s for moment_s in moments_s if moment_s < length_s), length_s])
    return [(begin_s, end_s) for begin_s, end_s in gaps if end_s - begin_s >= OUTAGE_S]


def recoveries_s(
    record: Record, length_s: float, moments_s: Sequence[float], events: Sequence[Event]
) -> list[float | None]:
    """How long after each outage until enough of what is urgent is on time again; None: not before the next outage."""
    chosen = [event for event in events if event.kind in URGENT]
    outages = [outage for outage in outages_of(moments_s, length_s) if outage[1] < length_s - 1.0]
    found: list[float | None] = []
    for number, (_, end_s) in enumerate(outages):
        stop_s = outages[number + 1][0] if number + 1 < len(outages) else length_s
        steps = (0.05 * step for step in range(int((stop_s - 1.0 - end_s) / 0.05) + 1))
        found.append(next((each for each in steps if _is_well(chosen, end_s + each, record, moments_s)), None))
        if stop_s - end_s < 1.0:
            found.pop()  # too short a time to tell
    return found


def _is_well(events: Sequence[Event], begin_s: float, record: Record, moments_s: Sequence[float]) -> bool:
    within = [event for event in events if begin_s <= event.at_s < begin_s + 1.0]
    on_time = share(within, record)
    return on_time >= ENOUGH or on_time >= share_limit(within, moments_s)


# -- showing -------------------------------------------------------------------------------------------------------


def _print(
    job: Job,
    moments_s: Sequence[float],
    events: Sequence[Event],
    limits: Limits,
    results: dict[str, Result],
) -> None:
    all_value = sum(CLASSES[event.kind].price for event in events)
    in_run = sum(moment_s < job.length_s for moment_s in moments_s)
    print(
        f"\n{job.trace} from second {job.begin_s:g}, {job.length_s:g} s: {in_run * 12e-3 / job.length_s:.2f} Mbit/s, "
        f"{len(outages_of(moments_s, job.length_s))} outages, {len(events)} events"
        + (f", back {job.back}" if job.back else "")
    )
    print(f"{'':20}" + "".join(f"{each.name:>9}" for each in CLASSES), end="")
    print(
        f"{'urgent*':>9}{'value':>8}{'of limit':>10}{'age p50':>9}{'p99':>7}{'recovery':>10}{'max':>7}{'never':>7}",
        end="",
    )
    print(f"{'carried':>9}{'used':>7}{'late ms':>9}")
    print(f"{'limit (each alone)':20}" + "".join(f"{each:>9.3f}" for each in limits.on_time), end="")
    print(f"{limits.urgent_in_bulk:>9.3f}{limits.value / all_value:>8.3f}{1.0:>10.1%}")
    for name, each in results.items():
        known = sorted(one for one in each.recoveries_s if one is not None)
        recovery = (f"{statistics.median(known):.2f}", f"{known[-1]:.2f}") if known else ("-", "-")
        print(f"{name:20}" + "".join(f"{one:>9.3f}" for one in each.on_time), end="")
        print(f"{each.urgent_in_bulk:>9.3f}{each.value / all_value:>8.3f}{each.value / limits.value:>10.1%}", end="")
        print(f"{each.age_s[0]:>9.2f}{each.age_s[1]:>7.2f}{recovery[0]:>10}{recovery[1]:>7}", end="")
        print(f"{len(each.recoveries_s) - len(known):>7}{each.carried:>9.2f}{each.used:>7.2f}", end="")
        print(f"{each.record.lateness_p99_s * 1e3:>9.0f}", flush=True)


def write(
    directory: Path,
    job: Job,
    moments_s: Sequence[float],
    events: Sequence[Event],
    limits: Limits,
    results: dict[str, Result],
) -> None:
    """The figures of a recording, as pictures and as data."""
    from benchmarks.radio_figures import draw

    directory.mkdir(parents=True, exist_ok=True)
    name = "radio-" + Path(job.trace).name.split("-")[0].lower() + ("-both" if job.back else "")
    data: dict[str, Any] = {
        "trace": Path(job.trace).name,
        "begin_s": job.begin_s,
        "length_s": job.length_s,
        "limit": limits._asdict(),
        "value_of_all": sum(CLASSES[event.kind].price for event in events),
        "brokers": {},
    }
    for each, found in results.items():
        data["brokers"][each] = {key: value for key, value in found._asdict().items() if key != "record"}
    (directory / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    values = {each: found.value / limits.value for each, found in results.items()}
    records = {each: found.record for each, found in results.items()}
    draw(directory / f"{name}.png", job, moments_s, events, values, records)


if __name__ == "__main__":
    main()
