"""Paper A, section 5: how many out-of-order receptions are repaired, and what the wait costs.

Every receiver replays what it received under every policy, as in the paper. Where the paper's figure does not follow
from its own model, both broker models of `_fifo_ordering_network` show what it follows from. The seeds are ones that
nothing was tuned on.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidings.experiments._claims import Claim, claim
from tidings.experiments._fifo_ordering_network import Model, Setting, make_traffic
from tidings.experiments._fifo_ordering_statistics import Adaptivity, adaptivity, fit_distances, independence
from tidings.experiments._processes import in_processes
from tidings.ordering import Policy, Replayed, Streams, optimal_static_latch, replay

__all__ = ["OrderingScale", "fifo_ordering"]

SETTINGS: Final[tuple[Setting, ...]] = ("8", "46")
MODELS: Final[tuple[Model, ...]] = ("independent", "stall")
POLICIES: Final = ("P-0.05-0", "P-0.05-5", "P-0.05-25", "P-0.2-0", "CST-30", "ours-record", "ours-quantile")
FIRST_SEED: Final = 4001

Job = tuple[Setting, Model, int, float]  # with the seed and the share of the whole length

PAPER: Final[Mapping[str, float]] = {
    "mitigation.8.P-0.05-0": 99.0,
    "mitigation.8.P-0.05-5": 99.0,
    "mitigation.8.P-0.05-25": 99.0,
    "mitigation.8.P-0.2-0": 91.0,
    "mitigation.8.CST-30": 99.0,
    "mitigation.46.P-0.05-0": 99.5,
    "mitigation.46.P-0.05-5": 99.5,
    "mitigation.46.P-0.05-25": 99.5,
    "unordered.8": 173_000.0,
    "unordered.46": 115_000.0,
    "cst.optimal": 30.0,
    "independence.wilcoxon": 0.35,
}


class OrderingScale(NamedTuple):
    """How much is run: how many seeds, and which share of the paper's 300 and 240 s."""

    runs: int
    share: float

    @classmethod
    def quick(cls) -> "OrderingScale":
        """One run of each kind, about a seventh of the length."""
        return cls(runs=1, share=0.15)

    @classmethod
    def full(cls) -> "OrderingScale":
        """Three runs of each kind, as long as the paper's."""
        return cls(runs=3, share=1.0)


class PolicyOutcome(NamedTuple):
    """One policy over one run; delays in ms, quantiles over the pairs of publisher and subscriber."""

    mitigation: float
    violations: int
    hold: tuple[float, float, float]  # mean, p50, p90
    assessed: tuple[float, float, float]


class RunOutcome(NamedTuple):
    """One run: by policy, what came out of order, and what the others would have to be to be as good."""

    policies: dict[str, PolicyOutcome]
    out_of_order: int
    static_latch_ms: float  # the least with no more violations than P-0.05-0
    equal_probability: float  # of the basic rule that violates as often as ours-quantile
    equal_hold_ms: float


def fifo_ordering(
    scale: OrderingScale, *, progress: Callable[[float], None] | None = None, workers: int | None = None
) -> tuple[list[Claim], Adaptivity]:
    """All claims, and the series that Figure 7 is drawn from."""
    cases = [(setting, model) for setting in SETTINGS for model in MODELS]
    jobs = [(*case, FIRST_SEED + n, scale.share) for case in cases for n in range(scale.runs)]
    outcomes: dict[tuple[Setting, Model], list[RunOutcome]] = {case: [] for case in cases}
    jobs.reverse()  # the longest first
    for done, (job, outcome) in enumerate(zip(jobs, in_processes(_run, jobs, workers), strict=True)):
        outcomes[job[0], job[1]].append(outcome)
        if progress is not None:
            progress((done + 1) / (len(jobs) + 1))
    claims = []
    for (setting, model), runs in outcomes.items():
        claims += _claims_of(setting, model, runs)
    laplace, hypoexponential = fit_distances(FIRST_SEED)
    claims += [
        Claim(id="fit.laplace2.k5", paper=None, measured=laplace, unit="KS distance", note=_FIT_LAPLACE),
        Claim(id="fit.hypoexponential", paper=None, measured=hypoexponential, unit="KS distance", note=_FIT_HYPO),
    ]
    claims += _independence_claims(scale)
    claims.append(_static_claim(outcomes))
    series = adaptivity(FIRST_SEED)
    claims.append(
        Claim(
            id="adaptivity",
            paper=None,
            measured=series.rank_correlation,
            unit="rank correlation",
            note="of the publishing rate and the computed violation probability, second by second; Figure 7 shows both",
        )
    )
    return claims, series


_FIT_LAPLACE = "delay differences over 5 brokers against two Laplacians of the moment estimate"
_FIT_HYPO = "6,500 delays over 5 brokers, less the links, against the 5 stages that fit best"


def _run(job: Job) -> RunOutcome:
    setting, model, seed, share = job
    streams = list(make_traffic(setting, model, seed, share=share).each())
    outcomes, late = {}, 0
    for name in POLICIES:
        found, late = _replayed(streams, Policy.parse(name))
        outcomes[name] = found
    static_ns = optimal_static_latch(streams, outcomes["P-0.05-0"].violations)
    probability = _equal_probability(streams, outcomes["ours-quantile"].violations)
    equal, _ = _replayed(streams, Policy.probabilistic(probability))
    return RunOutcome(outcomes, late, static_ns / 1e6, probability, equal.hold[0])


def _replayed(streams: Sequence[Streams], policy: Policy) -> tuple[PolicyOutcome, int]:
    results = [replay(some, [policy])[policy.name] for some in streams]
    late, violations = (sum(int(r.total(name).sum()) for r in results) for name in ("out_of_order", "violations"))
    outcome = PolicyOutcome(
        mitigation=100.0 * (1.0 - violations / max(late, 1)),
        violations=violations,
        hold=_mean_and_quantiles(results, "hold_ns"),
        assessed=_mean_and_quantiles(results, "assessed_ns"),
    )
    return outcome, late


def _mean_and_quantiles(results: Sequence[Replayed], name: str) -> tuple[float, float, float]:
    """In ms: the mean over all events, and the median and the 90th percentile of the pairs' means."""
    total_ns: NDArray[np.int64] = np.concatenate([r.total(name) for r in results])
    events: NDArray[np.int64] = np.concatenate([r.total("received") for r in results])
    used = events > 0
    by_pair = total_ns[used] / events[used] / 1e6
    p50, p90 = np.quantile(by_pair, [0.5, 0.9])
    return float(total_ns.sum() / events.sum() / 1e6), float(p50), float(p90)


def _equal_probability(streams: Sequence[Streams], violations: int) -> float:
    """The Pt of the basic rule that leaves so many violations, by bisection of its logarithm."""
    low, high = 1e-7, 0.5
    for _ in range(12):
        middle = float(np.sqrt(low * high))
        found = _replayed(streams, Policy.probabilistic(middle))[0].violations
        low, high = (middle, high) if found <= violations else (low, middle)
    return low


def _claims_of(setting: Setting, model: Model, runs: Sequence[RunOutcome]) -> list[Claim]:
    claims = []
    for name in POLICIES:
        end = f"{setting}.{model}.{name}"
        found = [run.policies[name] for run in runs]
        paper = PAPER.get(f"mitigation.{setting}.{name}")
        claims.append(claim(f"mitigation.{end}", [f.mitigation for f in found], unit="percent", paper=paper))
        note = _equal_note(runs) if name == "ours-quantile" else ""
        for which, part in (("", 0), (".p50", 1), (".p90", 2)):
            about = note if part == 0 else "over pairs of publisher and subscriber"
            claims += [
                claim(f"hold_ms.{end}{which}", [f.hold[part] for f in found], unit="ms", note=about),
                claim(f"assessed_ms.{end}{which}", [f.assessed[part] for f in found], unit="ms"),
            ]
    late = [float(run.out_of_order) for run in runs]
    paper = PAPER[f"unordered.{setting}"]
    claims.append(claim(f"unordered.{setting}.{model}", late, unit="receptions", paper=paper))
    return claims


def _equal_note(runs: Sequence[RunOutcome]) -> str:
    probability = np.exp(np.mean([np.log(run.equal_probability) for run in runs]))
    hold = np.mean([run.equal_hold_ms for run in runs])
    return f"the basic rule with as many violations (P-{probability:.2g}-0) holds for {hold:.4g} ms"


def _independence_claims(scale: OrderingScale) -> list[Claim]:
    wilcoxon, ks, note = independence(FIRST_SEED, share=min(scale.share, 0.2))
    return [
        Claim(
            id="independence.wilcoxon",
            paper=PAPER["independence.wilcoxon"],
            measured=wilcoxon,
            unit="p",
            note="rank-sum; it has no power against a change of scale. " + note,
        ),
        Claim(id="independence.ks", paper=None, measured=ks, unit="p", note="Kolmogorov-Smirnov. " + note),
    ]


def _static_claim(outcomes: Mapping[tuple[Setting, Model], Sequence[RunOutcome]]) -> Claim:
    means = {case: float(np.mean([run.static_latch_ms for run in runs])) for case, runs in outcomes.items()}
    note = "8 brokers, stall; " + ", ".join(
        f"{setting} {model}: {mean:.2f} ms" for (setting, model), mean in means.items()
    )
    values = [run.static_latch_ms for run in outcomes["8", "stall"]]
    return claim("cst.optimal", values, unit="ms", paper=PAPER["cst.optimal"], note=note)
