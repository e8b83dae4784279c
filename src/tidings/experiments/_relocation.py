"""Paper E, section 5: what moving publishers to their readers saves, by POP, GRAPE and ours.

For each workload and number of brokers X that a publisher's readers sit on: by how many per cent the message rate, the
delay, the utilisation and the hops of a delivery change against publishers that stay where they are, measured when the
places have been found, and which share of what brokers receive is control messages. Beyond the paper: which share of
quotes is on time, publishers placed together when brokers are overloaded, readers that move too, and what a move
itself costs the application, on the real protocol.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, get_args

import numpy as np

from tidings.experiments._claims import Claim, claim
from tidings.experiments._processes import in_processes
from tidings.experiments._relocation_migration import MOVES, TOGETHER, migrate
from tidings.experiments._relocation_network import Kind, Place, Publisher, make_place, make_publishers
from tidings.experiments._relocation_overload import RATE_PER_S, simulate_busy
from tidings.experiments._relocation_run import Outcome, Policy, decided_by, run
from tidings.placement import Metric, Reader, Source, place_readers

__all__ = ["RelocationScale", "draw_relocation", "relocation"]

KINDS: Final[tuple[Kind, ...]] = ("clustered", "random")
SPREADS: Final = (1, 2, 4, 8, 16, 32, 63)
POLICIES: Final[tuple[Policy, ...]] = ("pop", "grape-load100", "grape-delay100", "ours-ontime", "ours-joint")
WEIGHTS: Final = (1, 25, 50, 75, 100)
THRESHOLDS: Final = (10, 50, 100, 200)
READER_SPREADS: Final = (4, 16, 63)
FIRST_SEED: Final = 6001
DEPTH: Final = 5
PUBLISHERS: Final = 20
READERS: Final = 80
WEIGHTS_SPREAD: Final = 16
OVERLOAD_SPREAD: Final = 4

PAPER: Final[Mapping[str, float]] = {
    "rate.clustered.1.pop": -85.0,
    "rate.clustered.1.grape-load100": -85.0,
    "rate.clustered.1.grape-delay100": -85.0,
    "delay.clustered.1.pop": -63.0,
    "delay.clustered.1.grape-load100": -68.0,
    "delay.clustered.1.grape-delay100": -68.0,
    "utilisation.clustered.1.pop": -64.0,
    "utilisation.clustered.1.grape-load100": -68.0,
    "utilisation.clustered.1.grape-delay100": -68.0,
    "migration.lost": 0.0,
}


class RelocationScale(NamedTuple):
    """How many networks, each with its own links, homes and readers, and how many seconds with a quote each."""

    networks: int
    events: int

    @classmethod
    def quick(cls) -> "RelocationScale":
        """Two networks for ten minutes: places are found in the first two or three sessions."""
        return cls(networks=2, events=600)

    @classmethod
    def full(cls) -> "RelocationScale":
        """Ten networks for the paper's eighteen minutes."""
        return cls(networks=10, events=1080)


class Job(NamedTuple):
    """One network under some comparison; `kind` and `spread` name the workload."""

    what: str
    kind: Kind
    spread: int
    seed: int
    events: int


Figures = dict[str, float]


def relocation(
    scale: RelocationScale, *, progress: Callable[[float], None] | None = None, workers: int | None = None
) -> tuple[list[Claim], dict[str, list[float]]]:
    """All claims, and every figure by its id, one for each network."""
    jobs = []
    for seed in range(FIRST_SEED, FIRST_SEED + scale.networks):
        jobs += [Job("policies", kind, spread, seed, scale.events) for kind in KINDS for spread in SPREADS]
        for what in ("weights", "thresholds"):
            jobs.append(Job(what, "clustered", WEIGHTS_SPREAD, seed, scale.events))
        jobs.append(Job("overload", "clustered", OVERLOAD_SPREAD, seed, scale.events))
        jobs += [Job("readers", "random", spread, seed, scale.events) for spread in READER_SPREADS]
    for seed in range(FIRST_SEED, FIRST_SEED + max(1, scale.networks // 2)):
        jobs.append(Job("migration", "random", 0, seed, 0))
    found: dict[str, list[float]] = {}
    for done, figures in enumerate(in_processes(_run_job, jobs, workers)):
        for id, value in figures.items():
            found.setdefault(id, []).append(value)
        if progress is not None:
            progress((done + 1) / len(jobs))
    return [
        claim(id, values, unit=_unit(id), paper=PAPER.get(id), note=_note(id)) for id, values in found.items()
    ], found


def _run_job(job: Job) -> Figures:
    if job.what == "migration":
        return _migration(job)
    generator = np.random.default_rng([job.seed, job.spread, KINDS.index(job.kind)])
    place = make_place(DEPTH, generator)
    publishers = make_publishers(
        place,
        job.kind,
        job.spread,
        publishers=PUBLISHERS,
        readers=READERS,
        events=job.events,
        generator=generator,
    )
    compare = {
        "policies": _policies,
        "weights": _weights,
        "thresholds": _thresholds,
        "overload": _overload,
        "readers": _readers,
    }[job.what]
    return compare(place, publishers, job)


def _policies(place: Place, publishers: Sequence[Publisher], job: Job) -> Figures:
    base, _ = run(place, publishers, "baseline", seed=job.seed)
    figures = {f"ontime.{job.kind}.{job.spread}.baseline": 100 * base.on_time}
    for policy in POLICIES:
        found, _ = run(place, publishers, policy, seed=job.seed)
        where = f"{job.kind}.{job.spread}.{policy}"
        figures |= {
            f"rate.{where}": _change(found.messages_per_s, base.messages_per_s),
            f"delay.{where}": _change(found.delay_ms, base.delay_ms),
            f"utilisation.{where}": _change(found.utilisation, base.utilisation),
            f"hops.{where}": _change(found.hops, base.hops),
            f"overhead.{where}": 100 * found.overhead,
            f"ontime.{where}": 100 * found.on_time,
        }
    return figures


def _weights(place: Place, publishers: Sequence[Publisher], job: Job) -> Figures:
    base, _ = run(place, publishers, "baseline", seed=job.seed)
    figures: Figures = {}
    for metric in get_args(Metric):
        for weight in WEIGHTS:
            found, _ = run(place, publishers, decided_by(metric, weight), seed=job.seed)
            figures |= _changes(f"weights.{metric}{weight}", found, base)
    return figures


def _thresholds(place: Place, publishers: Sequence[Publisher], job: Job) -> Figures:
    base, _ = run(place, publishers, "baseline", seed=job.seed)
    figures: Figures = {}
    for events in THRESHOLDS:
        found, _ = run(place, publishers, "grape-load100", session=events, seed=job.seed)
        figures |= _changes(f"threshold.{events}", found, base)
        figures[f"threshold.{events}.overhead"] = 100 * found.overhead
    return figures


def _overload(place: Place, publishers: Sequence[Publisher], job: Job) -> Figures:
    """Where GRAPE and ours put publishers that send twelve times as much, and what happens there, with queues."""
    figures: Figures = {}
    for policy in ("grape-delay100", "ours-joint"):
        _, homes = run(place, publishers, policy, seed=job.seed, rate_per_s=RATE_PER_S)
        busy = simulate_busy(place, publishers, homes, job.seed)
        figures[f"overload.utilisation.{policy}"] = 100 * busy.utilisation_max
        figures[f"overload.delay.{policy}"] = busy.delay_ms
    return figures


def _readers(place: Place, publishers: Sequence[Publisher], job: Job) -> Figures:
    """Publishers placed by load, then their readers, with nobody later than before: traffic of events alone."""
    base, _ = run(place, publishers, "baseline", seed=job.seed)
    _, homes = run(place, publishers, "grape-load100", seed=job.seed)
    sources, readers = [], []
    for number, (publisher, home) in enumerate(zip(publishers, homes, strict=True)):
        tree = place.trees[home]
        reach = np.zeros(place.brokers)
        for broker in tree.order[1:].tolist():
            reach[broker] = reach[tree.parent[broker]] + place.link_ns[tree.parent_link[broker]]
        sources.append(Source(tree=tree, rate_per_s=1.0, events=job.events, reach_ns=np.rint(reach).astype(np.int64)))
        own = publisher.readers
        readers += [
            Reader(
                broker=int(own.broker[one]),
                matches={number: own.wants[one]},
                access_ns=np.rint(own.access_ns[one]).astype(np.int64),
            )
            for one in range(len(own.broker))
        ]
    plan = place_readers(sources, readers)
    return {f"subscribers.{job.kind}.{job.spread}.rate": _change(plan.messages_per_s, base.messages_per_s)}


def _migration(job: Job) -> Figures:
    """Moves of one publisher at a time, and of several at the same moment."""
    alone, together = migrate(job.seed), migrate(job.seed, together=TOGETHER)
    return {
        "migration.lost": alone.lost,
        "migration.duplicated": alone.duplicated,
        "migration.together.lost": together.lost,
        "migration.together.duplicated": together.duplicated,
        "migration.pause.median": float(np.median(alone.pauses_ms)),
        "migration.pause.max": max(alone.pauses_ms),
    }


def _changes(where: str, found: Outcome, base: Outcome) -> Figures:
    return {
        f"{where}.rate": _change(found.messages_per_s, base.messages_per_s),
        f"{where}.delay": _change(found.delay_ms, base.delay_ms),
        f"{where}.hops": _change(found.hops, base.hops),
    }


def _change(now: float, before: float) -> float:
    return 100.0 * (now / before - 1.0)


def _unit(id: str) -> str:
    if id.startswith(("overload.delay", "migration.pause")):
        return "ms"
    if id.startswith("migration"):
        return "deliveries"
    return "%" if id.startswith(("overhead", "ontime", "overload")) or id.endswith("overhead") else "% change"


def _note(id: str) -> str:
    first = id.partition(".")[0]
    return {
        "rate": "of all brokers' messages, control messages included, against publishers that stay",
        "delay": "mean over deliveries, with the links to and from clients",
        "utilisation": "mean over brokers, of matching events",
        "hops": "mean over deliveries",
        "overhead": "control messages as a share of what brokers receive",
        "ontime": "within 520 ms",
        "weights": f"GRAPE, clustered on {WEIGHTS_SPREAD} brokers",
        "threshold": f"GRAPE load100, clustered on {WEIGHTS_SPREAD} brokers, so many events in a session",
        "overload": f"{RATE_PER_S:g} quotes a second, clustered on {OVERLOAD_SPREAD} brokers, simulated with queues",
        "migration": f"{MOVES} moves at 50 events a second over the real protocol; together: {TOGETHER} at once",
        "subscribers": "GRAPE load100, then readers move where that makes none of them later; no control messages",
    }[first]


def draw_relocation(found: Mapping[str, Sequence[float]], folder: Path) -> list[Path]:
    """Figure 5 (by the number of brokers) and Figure 6 (by weight and threshold) of the paper, as PNG."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(13, 7), layout="constrained")
    panels = [(metric, kind) for kind in KINDS for metric in ("rate", "delay", "hops", "overhead")]
    for axes, (metric, kind) in zip(figure.subplots(2, 4).flat, panels, strict=True):
        for policy in POLICIES:
            values = [np.mean(found[f"{metric}.{kind}.{spread}.{policy}"]) for spread in SPREADS]
            axes.plot(range(len(SPREADS)), values, marker="o", label=policy)
        axes.set_xticks(range(len(SPREADS)), [str(spread) for spread in SPREADS])
        axes.set_xlabel("brokers with readers")
        axes.set_ylabel(_unit(metric))
        axes.set_title(f"{metric}, {kind}", fontsize=10)
    figure.axes[0].legend(fontsize=8)
    figure.suptitle("Figure 5: against publishers that stay where they are")
    written = [folder / "figure-5-relocation.png"]
    figure.savefig(written[0], dpi=120, metadata={"Software": None})
    figure = Figure(figsize=(12, 4), layout="constrained")
    for axes, metric in zip(figure.subplots(1, 3), ("rate", "delay", "hops"), strict=True):
        for priority in get_args(Metric):
            values = [np.mean(found[f"weights.{priority}{weight}.{metric}"]) for weight in WEIGHTS]
            axes.plot(WEIGHTS, values, marker="o", label=f"priority {priority}")
        by_threshold = [np.mean(found[f"threshold.{events}.{metric}"]) for events in THRESHOLDS]
        axes.plot(THRESHOLDS, by_threshold, marker="s", linestyle="--", label="load100, by events in a session")
        axes.set_xlabel("weight; events in a session")
        axes.set_ylabel(_unit(metric))
        axes.set_title(metric, fontsize=10)
    figure.axes[0].legend(fontsize=8)
    figure.suptitle(f"Figure 6: weights and thresholds, clustered on {WEIGHTS_SPREAD} brokers")
    written.append(folder / "figure-6-relocation.png")
    figure.savefig(written[1], dpi=120, metadata={"Software": None})
    return written
