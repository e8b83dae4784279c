"""The figures of `radio`: capacity, what was in time and how old it was, second by second."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.radio_limit import share_limit
from benchmarks.radio_link import PACKET_BYTES
from benchmarks.radio_load import CLASSES, Event, bulk_phases
from benchmarks.radio_player import Job, Record

__all__ = ["draw"]

WITHIN_S = 2.0
COLOURS = {
    "tidings": "#c0392b",
    "tidings-mqtt": "#e08e79",
    "mosquitto": "#1f77b4",
    "mosquitto-split": "#7fb3d9",
    "nats": "#2ca02c",
    "rabbitmq": "#ff7f0e",
    "rabbitmq-priority": "#c49c3c",
    "zenoh": "#9467bd",
    "activemq": "#555555",
}


def draw(
    path: Path,
    job: Job,
    moments_s: Sequence[float],
    events: Sequence[Event],
    values: dict[str, float],
    records: dict[str, Record],
) -> None:
    """One picture of a recording; `values` are shares of the limit."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (link, on_time, age, bars) = pyplot.subplots(
        4, 1, figsize=(9.0, 10.0), height_ratios=(1.0, 1.6, 1.3, 1.3), constrained_layout=True
    )
    seconds = range(int(job.length_s))
    moments = [sum(begin_s <= moment_s < begin_s + 1.0 for moment_s in moments_s) for begin_s in seconds]
    link.fill_between(seconds, [many * PACKET_BYTES * 8e-6 for many in moments], step="post", color="#b0b8c0")
    link.set_ylabel("link, Mbit/s")
    link.set_title(f"{Path(job.trace).name}: what arrives over the recorded link")
    urgent = [event for event in events if CLASSES[event.kind].name in ("alarm", "urgent")]
    steps = [step * WITHIN_S for step in range(int(job.length_s / WITHIN_S))]
    groups = [[event for event in urgent if step <= event.at_s < step + WITHIN_S] for step in steps]
    middle = [step + WITHIN_S / 2 for step in steps]
    on_time.plot(
        middle, [share_limit(group, moments_s) for group in groups], color="black", lw=1.0, ls=":", label="limit"
    )
    for name, record in records.items():
        style = {"color": COLOURS[name], "lw": 1.8 if name.startswith("tidings") else 0.9}
        on_time.plot(middle, [_share(group, record) for group in groups], label=name, **style)
        age.plot(middle, [_median_age_s(group, record) for group in groups], **style)
    on_time.set_ylabel("alarms and urgent\nin time")
    on_time.legend(ncol=5, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    age.set_ylabel("their median age, s\n(delivered)")
    age.set_yscale("log")
    age.set_xlabel("second of publication; grey: bulk is published")
    for panel in (link, on_time, age):
        panel.set_xlim(0.0, job.length_s)
        for begin_s, end_s in bulk_phases(job.length_s):
            panel.axvspan(begin_s, end_s, color="#000000", alpha=0.06, lw=0)
    bars.bar(list(values), list(values.values()), color=[COLOURS[name] for name in values])
    bars.axhline(1.0, color="black", lw=1.0, ls=":")
    bars.set_ylabel("value in time,\nof the limit")
    bars.tick_params(axis="x", labelrotation=20, labelsize=8)
    for place, each in enumerate(values.values()):
        bars.text(place, each, f"{each:.0%}", ha="center", va="bottom", fontsize=8)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _share(events: Sequence[Event], record: Record) -> float:
    hits = sum(record.came_s.get(event.number, 1e9) <= event.due_s for event in events)
    return hits / len(events) if events else 1.0


def _median_age_s(events: Sequence[Event], record: Record) -> float:
    ages_s = sorted(record.came_s[each.number] - each.at_s for each in events if each.number in record.came_s)
    return ages_s[len(ages_s) // 2] if ages_s else float("nan")
