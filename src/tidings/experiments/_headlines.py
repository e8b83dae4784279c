"""The statements of each paper's evaluation, and whether they hold: one judgement for each.

A judgement is computed from the claims of a run, by the margin written beside it; only the text of the reason is fixed
beforehand. If a paper's network has two readings, a statement that is true in one of them holds in part. Statements
without a figure are judged by their words.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Final, Literal, NamedTuple

import msgspec

from tidings.experiments._claims import Claim

__all__ = ["Headline", "Verdict", "judge"]

Verdict = Literal["holds", "in part", "does not hold"]


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of a paper: its figure, ours, whether it holds, and why if it does not."""

    says: str
    where: str
    paper: str
    measured: str
    verdict: Verdict
    why: str = ""


class Found:
    """The measured figures of a run, by the claim's id."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._claims = {claim.id: claim for claim in claims}

    def __getitem__(self, id: str) -> float:
        value = self._claims[id].measured
        return float("nan") if value is None else value

    def note(self, id: str) -> str:
        return self._claims[id].note

    def values(self, start: str, end: str = "") -> dict[str, float]:
        """All figures whose id begins and ends so, by what is between."""
        return {
            id[len(start) : len(id) - len(end)]: self[id]
            for id in self._claims
            if id.startswith(start) and id.endswith(end)
        }


class Judgement(NamedTuple):
    """What was measured, in how many of its readings it agrees, and why where it does not in all."""

    measured: str
    agrees: Sequence[bool]
    why: str = ""


class Statement(NamedTuple):
    """A row of the tables below."""

    says: str
    where: str
    paper: str
    judged: Callable[[Found], Judgement]


def judge(letter: str, claims: Sequence[Claim]) -> tuple[Headline, ...]:
    """Every statement of a paper, by its letter, against the claims of a run."""
    found = Found(claims)
    headlines = []
    for statement in STATEMENTS[letter]:
        measured, agrees, why = statement.judged(found)
        verdict: Verdict = "holds" if all(agrees) else "in part" if any(agrees) else "does not hold"
        headlines.append(
            Headline(
                says=statement.says,
                where=statement.where,
                paper=statement.paper,
                measured=measured,
                verdict=verdict,
                why="" if verdict == "holds" else why,
            )
        )
    return tuple(headlines)


def _near(value: float, paper: float, margin: float) -> bool:
    return abs(value - paper) <= margin


# --- A: probabilistic FIFO ordering


def _repaired(brokers: str, policy: str, paper: float, margin: float) -> Callable[[Found], Judgement]:
    def judged(found: Found) -> Judgement:
        shares = [found[f"mitigation.{brokers}.{model}.{policy}"] for model in ("independent", "stall")]
        return Judgement(
            f"{shares[0]:.1f} % with independent delays, {shares[1]:.1f} % with stalls",
            [share >= paper - margin for share in shares],
            "independent delays cap what a pair repairs at 1 - Pt/.5; delays that come in stalls keep order among "
            "themselves and inflate the estimate, which is what lifts the paper's figure",
        )

    return judged


def _as_good_as_static(found: Found) -> Judgement:
    pairs = [(found[f"mitigation.8.{m}.P-0.05-0"], found[f"mitigation.8.{m}.CST-30"]) for m in ("independent", "stall")]
    return Judgement(
        "; ".join(f"{ours:.1f} % against {static:.1f} %" for ours, static in pairs) + " (independent; stalls)",
        [_near(ours, static, 1.0) for ours, static in pairs],
        "30 ms is far longer than delays differ here, so it repairs nearly everything, at a hold of about 26 ms",
    )


def _record_is_free(found: Found) -> Judgement:
    models = ("independent", "stall")
    apart = max(abs(found[f"mitigation.8.{m}.P-0.05-0"] - found[f"mitigation.8.{m}.P-0.05-25"]) for m in models)
    middle = [found[f"hold_ms.8.{m}.P-0.05-25.p50"] for m in models]
    return Judgement(
        f"{apart:.1f} points apart; half of the pairs wait for at most {max(middle):.3g} ms",
        [apart <= 1.5, max(middle) <= 0.05],
        "a record shortens waits that would have repaired a little more",
    )


def _static_latch(found: Found) -> Judgement:
    return Judgement(
        f"{found['cst.optimal']:.2g} ms ({found.note('cst.optimal')})",
        [_near(found["cst.optimal"], 30.0, 10.0)],
        "brokers here take .05 to 1 ms for an event; the paper's figure follows from a few milliseconds",
    )


def _independence(found: Found) -> Judgement:
    rank, shape = found["independence.wilcoxon"], found["independence.ks"]
    shown = ["< .001" if p < 1e-3 else f"{p:.2g}" for p in (rank, shape)]
    return Judgement(
        f"p {shown[0]} (rank-sum), {shown[1]} (Kolmogorov-Smirnov)",
        [rank >= 0.05, shape >= 0.05],
        "in stalls long delays and large differences come together; rank-sum has no power against a change of scale",
    )


_A: Final = (
    Statement("Pt = .05 repairs over 99 %, 8 brokers", "5.2, Fig. 5a", "> 99 %", _repaired("8", "P-0.05-0", 99, 1)),
    Statement("Pt = .2 repairs about 91 %, 8 brokers", "5.2, Fig. 5a", "91 %", _repaired("8", "P-0.2-0", 91, 2)),
    Statement("Pt = .05 repairs 99.5 %, 46 brokers", "5.2, Fig. 6", "99.5 %", _repaired("46", "P-0.05-0", 99.5, 1)),
    Statement("... as well as a constant latch of 30 ms", "5.2, Fig. 5a", "the same", _as_good_as_static),
    Statement(
        "a record of 25 changes no repair, and most nodes then wait for nothing", "5.2, Fig. 5b", "", _record_is_free
    ),
    Statement("the best constant latch is 30 ms", "5.2", "30 ms", _static_latch),
    Statement("delays differ independently of how long they are", "5.1", "p = .35", _independence),
)

# --- B: timeliness and reliability


def _worst(found: Found, start: str) -> float:
    return max(found.values(start).values())


def _accurate(model: str) -> Callable[[Found], Judgement]:
    def judged(found: Found) -> Judgement:
        loaded, light = _worst(found, f"mae.{model}."), _worst(found, f"low.mae.{model}.")
        return Judgement(
            f"mean |R' - R| up to {loaded:.3f} on Table 3 as printed, {light:.4f} at a quarter of its load",
            [loaded <= 0.05, light <= 0.05],
            "the mean wait is added as if it were a constant: exact only where waits are short against the deadline",
        )

    return judged


def _exponential_best(found: Found) -> Judgement:
    errors = found.values("mae.mm1.")
    best = min(errors, key=lambda distributions: errors[distributions])
    return Judgement(f"{best} ({errors[best]:.3f})", [best == "exp-exp"], "another pair of distributions is nearer")


def _better_than_mm1(found: Found) -> Judgement:
    by_mm1, by_gg1 = found.values("mae.mm1."), found.values("mae.gg1.")
    better = [by_gg1[distributions] < by_mm1[distributions] for distributions in by_mm1 if distributions != "exp-exp"]
    same = _near(by_gg1["exp-exp"], by_mm1["exp-exp"], 1e-3)
    return Judgement(
        f"better for {sum(better)} of {len(better)} other pairs; exponential: {by_mm1['exp-exp']:.3f} and "
        f"{by_gg1['exp-exp']:.3f}",
        [all(better), same],
        "where waits dominate, a better mean wait does not mend that it is taken as a constant",
    )


def _skewness(found: Found) -> Judgement:
    flat, known, steep = found["alpha.0.5"], found["alpha.1"], found["alpha.2"]
    return Judgement(
        f"error {flat:.3f} at .5, {known:.3f} at 1, {steep:.3f} at 2",
        [flat > steep >= known],
        "it needs content with a long tail; ours has ten values for each attribute",
    )


_B: Final = (
    Statement("M/M/1 predicts every subscriber accurately", "5.2, Fig. 4", "on the diagonal", _accurate("mm1")),
    Statement("... most accurately with exponential distributions", "5.2, Fig. 4a", "exp-exp", _exponential_best),
    Statement(
        "G/G/1 predicts accurately whatever the distributions", "5.3, Fig. 5", "on the diagonal", _accurate("gg1")
    ),
    Statement("G/G/1 is better than M/M/1, and the same where both are exponential", "5.3", "", _better_than_mm1),
    Statement("content taken as too flat (alpha < 1) harms more than too steep", "5.4, Fig. 6", "", _skewness),
)

# --- C: bounded delay

_SETTINGS: Final = ("single-path", "literal-table")
_READINGS: Final = (
    "the paper's text (one path) and its data structure (a table without publishers, so duplicates arise) are two "
    "networks; its figures fit the second"
)


def _delivery(strategy: str, paper: float) -> Callable[[Found], Judgement]:
    return _both(f"delivery.{{setting}}.15.{strategy}", paper, 4.0, " %")


def _both(name: str, paper: float, margin: float, unit: str = "") -> Callable[[Found], Judgement]:
    def judged(found: Found) -> Judgement:
        values = [found[name.format(setting=setting)] for setting in _SETTINGS]
        shown = ["never" if isnan(value) else f"{value:.3g}{unit}" for value in values]
        words = ", ".join(f"{text} ({setting})" for text, setting in zip(shown, _SETTINGS, strict=True))
        return Judgement(words, [_near(value, paper, margin) for value in values], _READINGS)

    return judged


def _ratio(name: str, one: str, other: str, paper: float, margin: float, why: str) -> Callable[[Found], Judgement]:
    def judged(found: Found) -> Judgement:
        ratios = [found[f"{name}.{s}.15.{one}"] / found[f"{name}.{s}.15.{other}"] for s in _SETTINGS]
        words = ", ".join(f"{ratio:.3g} ({setting})" for ratio, setting in zip(ratios, _SETTINGS, strict=True))
        return Judgement(words, [_near(ratio, paper, margin) for ratio in ratios], why)

    return judged


_EARNINGS: Final = "the ratio varies a great deal from topology to topology; what holds is the order of the strategies"

_C: Final = (
    Statement(
        "EB delivers 40.1 % at rate 15",
        "6.2, Fig. 6a",
        "40.1 %",
        _delivery("eb", 40.1),
    ),
    Statement("FIFO delivers 22.5 %", "6.2, Fig. 6a", "22.5 %", _delivery("fifo", 22.5)),
    Statement("RL delivers 11.6 %", "6.2, Fig. 6a", "11.6 %", _delivery("rl", 11.6)),
    Statement("PC delivers almost the same as EB", "6.2", "1", _ratio("delivery", "pc", "eb", 1.0, 0.1, _READINGS)),
    Statement("EB has 17 % more traffic than FIFO", "6.2", "1.17", _ratio("traffic.psd", "eb", "fifo", 1.17, 0.08, "")),
    Statement(
        "EB has 60 % more traffic than RL",
        "6.2, Fig. 6b",
        "1.60",
        _ratio("traffic.psd", "eb", "rl", 1.6, 0.2, "RL delivers so little that its traffic swings with the topology"),
    ),
    Statement("EB earns 5 times as much as FIFO", "6.2", "5", _ratio("earning", "eb", "fifo", 5, 1, _EARNINGS)),
    Statement("EB earns 10 times as much as RL", "6.2", "10", _ratio("earning", "eb", "rl", 10, 2, _EARNINGS)),
    Statement("EBPC earns more than EB if r > .23", "6.2, Fig. 4a", "r = .23", _both("ebpc.r.{setting}", 0.23, 0.2)),
)

# --- D: fault tolerance


def _order(quality: str) -> Callable[[Found], Judgement]:
    def judged(found: Found) -> Judgement:
        shares = found.values(f"reliability.graph.{quality}.arbitrary.")
        is_best = shares["bypass+buffer"] >= max(shares.values()) - 0.002
        return Judgement(
            found.note(f"order.{quality}").partition("; ")[2],
            [found[f"order.{quality}"] == 1.0, is_best],
            "detours keep no copy: where a topic's tree has short paths, storing repairs more than detours do",
        )

    return judged


def _within_noise(found: Found) -> Judgement:
    errors, noise = found.values("mae."), found.values("noise.")
    worst = max(errors, key=lambda case: errors[case] / noise[case])
    return Judgement(
        f"mean error {min(errors.values()):.4f} to {max(errors.values()):.4f}; at most "
        f"{errors[worst] / noise[worst]:.2f} times what the runs themselves differ by",
        [errors[case] <= 1.5 * noise[case] + 5e-4 for case in errors],
        "beyond the noise of twenty cycles of failure and repair",
    )


def _path(scheme: str, equation: float) -> Callable[[Found], Judgement]:
    def judged(found: Found) -> Judgement:
        value = found[f"path.{scheme}"]
        return Judgement(f"{value:.3f}", [_near(value, equation, 0.015)], "the run was too short for this margin")

    return judged


_D: Final = (
    Statement("predictions lie on the diagonal, in every case", "5.2, Fig. 6, 7", "on the diagonal", _within_noise),
    Statement("low-end brokers: bypass+buffer, bypass, buffer, periodic", "5.2.2, Fig. 7a", "the order", _order("low")),
    Statement("high-end: buffering as good as bypass+buffer", "5.2.2, Fig. 7b", "the order", _order("high")),
    Statement("equation 3, on a path of three brokers", "4.2", ".771", _path("periodic", 0.771307)),
    Statement("equation 4, on the same path", "4.3", ".856", _path("buffer", 0.856083)),
)

# --- E: publisher relocation

_MATCHING: Final = "here it is the time that brokers spend on matching events, control messages left out"
_ONE_BROKER: Final = "holds where all readers of a publisher sit on one broker; as they spread, it falls"


def _change(name: str, policy: str, paper: float, why: str = _ONE_BROKER) -> Callable[[Found], Judgement]:
    def judged(found: Found) -> Judgement:
        gathered, spread = found[f"{name}.clustered.1.{policy}"], found[f"{name}.clustered.16.{policy}"]
        return Judgement(
            f"{gathered:+.0f} % with readers on 1 broker, {spread:+.0f} % on 16",
            [_near(gathered, paper, 6), _near(spread, paper, 6)],
            why,
        )

    return judged


_SETTINGS_OF_TRACES: Final = "it follows from publishing rates and from how many events are traced, as the paper says"


def _overhead(policy: str, paper: float) -> Callable[[Found], Judgement]:
    def judged(found: Found) -> Judgement:
        most = max(found.values("overhead.clustered.", f".{policy}").values())
        return Judgement(f"{most:.0f} %", [_near(most, paper, 6)], _SETTINGS_OF_TRACES)

    return judged


def _overhead_random(found: Found) -> Judgement:
    def mean(policy: str) -> float:
        values = found.values("overhead.random.", f".{policy}").values()
        return sum(values) / len(values)

    saved = 100 * (1 - mean("grape-load100") / mean("pop"))
    return Judgement(f"{saved:.0f} % less", [saved >= 80], _SETTINGS_OF_TRACES)


def _lossless(found: Found) -> Judgement:
    lost, doubled = found["migration.lost"], found["migration.duplicated"]
    return Judgement(
        f"{lost:g} lost, {doubled:g} doubled",
        [lost == 0, doubled == 0],
        "something was lost or came twice while publishers moved",
    )


_E: Final = (
    Statement("message rate falls by 85 %", "5.2", "-85 %", _change("rate", "grape-load100", -85)),
    Statement("delay falls by 68 % (GRAPE)", "5.2", "-68 %", _change("delay", "grape-delay100", -68)),
    Statement("delay falls by 63 % (POP)", "5.2", "-63 %", _change("delay", "pop", -63)),
    Statement("utilisation falls by 68 %", "5.2", "-68 %", _change("utilisation", "grape-load100", -68, _MATCHING)),
    Statement("control messages are at most 32 % (POP)", "5.2, Fig. 5f", "32 %", _overhead("pop", 32)),
    Statement("... and 16 % (GRAPE)", "5.2, Fig. 5f", "16 %", _overhead("grape-load100", 16)),
    Statement("GRAPE has 91 % less overhead than POP, random workload", "5.2", "91 % less", _overhead_random),
    Statement("moving a publisher loses nothing (as corrected)", "3.3", "0", _lossless),
)

STATEMENTS: Final[Mapping[str, tuple[Statement, ...]]] = {"A": _A, "B": _B, "C": _C, "D": _D, "E": _E}
