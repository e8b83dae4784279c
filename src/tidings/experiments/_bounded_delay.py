"""Paper C, section 6: bounded delay by scheduling, on layered meshes.

Two readings of the paper's network:

- `single-path`: one path per publisher and subscriber, free access links.
- `literal-table`: the subscription table as printed has no publisher column, so every broker forwards to all matching
  subscribers that it can reach, by its own best neighbour, and duplicates arise; the publisher's link costs a
  transmission, drawn like every other.

and two kinds of deadline: PSD (the publisher's, 10 to 30 s; what counts is the delivery rate) and SSD (the
subscriber's, 10, 30 or 60 s for 3, 2 or 1; what counts is the earnings). `ours` is the default strategy of Tidings, on
spread routes where there is a path to choose. A topology is one seed: links, filters, deadlines and traffic
are drawn by it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from tidings.experiments._claims import Claim, claim
from tidings.experiments._processes import worker_processes
from tidings.model.distributions import TruncatedNormal
from tidings.model.scenario import Network, Scenario
from tidings.simulation import Options, simulate

__all__ = ["Scale", "bounded_delay", "draw_figures"]

Setting = Literal["single-path", "literal-table"]
Deadlines = Literal["psd", "ssd"]

SETTINGS: Final[tuple[Setting, ...]] = ("single-path", "literal-table")
DEADLINES: Final[tuple[Deadlines, ...]] = ("psd", "ssd")
STRATEGIES: Final = ("fifo", "rl", "eb", "pc", "ebpc", "ours")
MIX: Final = 0.6  # r of EBPC where it is compared with the others
FIRST_SEED: Final = 1001  # topologies that nothing was tuned on

PAPER: Final[Mapping[str, float]] = {
    "delivery.15.eb": 40.1,
    "delivery.15.fifo": 22.5,
    "delivery.15.rl": 11.6,
    "ebpc.r": 0.23,
}

_TOML = """
title = "bounded delay"
duration = "{duration_s} s"
[topology]
kind = "layered-mesh"
layers = [4, 4, 8, 16]
fan_in = ["all", 2, 2]
direction = "downstream"
[links.slowness]
distribution = "normal"
mean = {{ distribution = "uniform", low = "50 ms/kB", high = "100 ms/kB" }}
sd = "20 ms/kB"
[brokers]
processing = "2 ms"
[[publishers]]
name = "publisher"
at = "layer:1"
per_broker = 1
rate = "{rate} /min"
size = "50 kB"
{lifetime}
attributes.A1 = {{ distribution = "uniform", low = 0, high = 10 }}
attributes.A2 = {{ distribution = "uniform", low = 0, high = 10 }}
[[subscribers]]
name = "subscriber"
at = "layer:4"
per_broker = 10
filter = "A1 < {{x1}} AND A2 < {{x2}}"
{max_delay}
parameters.x1 = {{ distribution = "uniform", low = 0, high = 10 }}
parameters.x2 = {{ distribution = "uniform", low = 0, high = 10 }}
"""
_LIFETIME = 'lifetime = { distribution = "uniform", low = "10 s", high = "30 s" }'
_MAX_DELAY = 'max_delay = [{ delay = "10 s", price = 3 }, { delay = "30 s", price = 2 }, { delay = "60 s", price = 1 }]'


class Scale(NamedTuple):
    """How much is run."""

    topologies: int
    duration_s: float
    rates: tuple[int, ...]
    mixes: tuple[float, ...]

    @classmethod
    def quick(cls) -> "Scale":
        """Ten topologies, forty minutes each, the rates that are reported."""
        return cls(topologies=10, duration_s=2400.0, rates=(5, 10, 15), mixes=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0))

    @classmethod
    def full(cls) -> "Scale":
        """As the paper: two hours, all rates."""
        mixes = tuple(round(0.1 * step, 1) for step in range(11))
        return cls(topologies=24, duration_s=7200.0, rates=(1, 3, 5, 7, 10, 12, 15), mixes=mixes)


class Case(NamedTuple):
    """One run, before the topology is chosen."""

    setting: Setting
    deadlines: Deadlines
    rate: int
    strategy: str
    mix: float = MIX


class Outcome(NamedTuple):
    delivery: float  # percent
    earnings: float
    traffic: float  # events received by brokers


def bounded_delay(
    scale: Scale, *, progress: Callable[[float], None] | None = None, workers: int | None = None
) -> tuple[list[Claim], dict[Case, list[Outcome]]]:
    """All claims, and the outcomes that they are made of, by case and topology."""
    # Cases that differ only in their policies share a network: a job is all of them on one topology.
    alike: dict[tuple[Setting, Deadlines, int], list[Case]] = defaultdict(list)
    for case in _cases(scale):
        alike[case.setting, case.deadlines, case.rate].append(case)
    jobs = [(cases, scale.duration_s, FIRST_SEED + n) for n in range(scale.topologies) for cases in alike.values()]
    outcomes: dict[Case, list[Outcome]] = defaultdict(list)
    with worker_processes(workers) as pool:
        for done, (job, found) in enumerate(zip(jobs, pool.map(_run, jobs), strict=True)):
            for case, outcome in zip(job[0], found, strict=True):
                outcomes[case].append(outcome)
            if progress is not None:
                progress((done + 1) / len(jobs))
    return _claims(scale, outcomes), dict(outcomes)


def _cases(scale: Scale) -> Iterator[Case]:
    for setting in SETTINGS:
        for deadlines in DEADLINES:
            for rate in scale.rates:
                for strategy in STRATEGIES:
                    yield Case(setting, deadlines, rate, strategy)
        for mix in scale.mixes:
            if mix != MIX:
                yield Case(setting, "ssd", 10, "ebpc", mix)
                yield Case(setting, "psd", 10, "ebpc", mix)


def _run(job: tuple[Sequence[Case], float, int]) -> list[Outcome]:
    """The outcomes of cases with the same setting, deadlines and rate, on one topology."""
    cases, duration_s, seed = job
    network = _scenario(cases[0], duration_s).expand(seed)
    is_literal = cases[0].setting == "literal-table"
    options = Options(access_slowness=_access(seed, len(network.publishers))) if is_literal else None
    outcomes = []
    for case in cases:
        result = simulate(_with_policies(network, case), options)
        rate = result.delivery_rate
        outcomes.append(Outcome(100.0 * rate if rate is not None else 0.0, result.earnings, float(result.traffic)))
    return outcomes


def _scenario(case: Case, duration_s: float) -> Scenario:
    text = _TOML.format(
        duration_s=duration_s,
        rate=case.rate,
        lifetime=_LIFETIME if case.deadlines == "psd" else "",
        max_delay=_MAX_DELAY if case.deadlines == "ssd" else "",
    )
    return Scenario.parse(text, "bounded delay")


def _with_policies(network: Network, case: Case) -> Network:
    """The network under the strategy and the routes of a case; "ours" is what a scenario has that names no strategy."""
    policies = network.policies
    scheduling = policies.scheduling
    if case.strategy != "ours":
        mix = case.mix if case.strategy == "ebpc" else None
        scheduling = replace(scheduling, name=case.strategy, r=mix)
    routing = "spread" if case.strategy == "ours" and case.setting == "single-path" else case.setting
    return replace(network, policies=replace(policies, scheduling=scheduling, routing=routing))


def _access(seed: int, publishers: int) -> list[TruncatedNormal]:
    """A link of the same kind as all others between each publisher and its broker."""
    generator = np.random.default_rng([seed, 1])
    return [TruncatedNormal(location=float(mean), scale=0.02) for mean in generator.uniform(0.05, 0.1, publishers)]


def _claims(scale: Scale, outcomes: Mapping[Case, Sequence[Outcome]]) -> list[Claim]:
    claims = []
    for setting in SETTINGS:
        for rate in (rate for rate in scale.rates if rate in (5, 10, 15)):
            for strategy in STRATEGIES:
                psd = outcomes[Case(setting, "psd", rate, strategy)]
                ssd = outcomes[Case(setting, "ssd", rate, strategy)]
                end = f"{setting}.{rate}.{strategy}"
                paper = PAPER.get(f"delivery.{rate}.{strategy}")
                claims += [
                    claim(f"delivery.{end}", [o.delivery for o in psd], unit="percent", paper=paper),
                    claim(f"earning.{end}", [o.earnings for o in ssd], unit="price", note=_median(ssd)),
                    claim(f"traffic.psd.{end}", [o.traffic for o in psd], unit="events"),
                    claim(f"traffic.ssd.{end}", [o.traffic for o in ssd], unit="events"),
                ]
        claims.append(_turning_point(setting, scale, outcomes))
    return claims


def _median(outcomes: Iterable[Outcome]) -> str:
    return f"median {np.median([o.earnings for o in outcomes]):.0f} (heavy-tailed: compare medians)"


def _turning_point(setting: Setting, scale: Scale, outcomes: Mapping[Case, Sequence[Outcome]]) -> Claim:
    """The least r from which on EBPC earns more than EB alone, in the mean over topologies, at rate 10."""
    eb = np.mean([o.earnings for o in outcomes[Case(setting, "ssd", 10, "eb")]])
    better = []
    for mix in sorted(scale.mixes):
        earned = np.mean([o.earnings for o in outcomes[Case(setting, "ssd", 10, "ebpc", mix)]])
        better.append((mix, bool(earned > eb * (1 + 1e-12))))
    start: float | None = None
    for mix, is_better in better:
        if mix == 1.0:
            continue  # EBPC(1) is EB
        if is_better and start is None:
            start = mix
        elif not is_better:
            start = None
    note = "earnings against EB by r: " + ", ".join(f"{mix:g}: {'+' if won else '-'}" for mix, won in better)
    return Claim(id=f"ebpc.r.{setting}", paper=PAPER["ebpc.r"], measured=start, unit="r", note=note)


def draw_figures(outcomes: Mapping[Case, Sequence[Outcome]], scale: Scale, folder: Path) -> list[Path]:
    """Figures 4 (EBPC by r), 5 (SSD by rate) and 6 (PSD by rate) of the paper for both settings, as PNG."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for setting in SETTINGS:
        for number, deadlines in zip((6, 5), DEADLINES, strict=True):
            figure = Figure(figsize=(10, 4), layout="constrained")
            worth, traffic = figure.subplots(1, 2)
            for strategy in STRATEGIES:
                cases = [Case(setting, deadlines, rate, strategy) for rate in scale.rates]
                worth.plot(
                    scale.rates, [_worth(outcomes[case], deadlines) for case in cases], marker="o", label=strategy
                )
                received = [np.mean([o.traffic for o in outcomes[case]]) for case in cases]
                traffic.plot(scale.rates, received, marker="o")
            for axes in (worth, traffic):
                axes.set_xlabel("events per minute and publisher")
            worth.set_ylabel(_UNITS[deadlines])
            traffic.set_ylabel("events received by brokers")
            worth.legend()
            figure.suptitle(f"Figure {number}: {deadlines.upper()}, {setting}")
            written.append(folder / f"figure-{number}-{setting}.png")
            figure.savefig(written[-1], dpi=120, metadata={"Software": None})
        figure = Figure(figsize=(10, 4), layout="constrained")
        for axes, deadlines in zip(figure.subplots(1, 2), DEADLINES, strict=True):
            for strategy, colour in (("eb", "C2"), ("pc", "C3")):
                level = _worth(outcomes[Case(setting, deadlines, 10, strategy)], deadlines)
                axes.axhline(level, linestyle="--", label=strategy, color=colour)
            mixed = [_worth(outcomes[Case(setting, deadlines, 10, "ebpc", mix)], deadlines) for mix in scale.mixes]
            axes.plot(scale.mixes, mixed, marker="o", label="ebpc", color="C4")
            axes.set_xlabel("r, the weight of EB")
            axes.set_ylabel(_UNITS[deadlines])
            axes.legend()
        figure.suptitle(f"Figure 4: EBPC at rate 10, {setting}")
        written.append(folder / f"figure-4-{setting}.png")
        figure.savefig(written[-1], dpi=120, metadata={"Software": None})
    return written


_UNITS: Final = {"psd": "delivery rate, %", "ssd": "total earning"}


def _worth(outcomes: Iterable[Outcome], deadlines: Deadlines) -> float:
    return float(np.mean([o.delivery if deadlines == "psd" else o.earnings for o in outcomes]))
