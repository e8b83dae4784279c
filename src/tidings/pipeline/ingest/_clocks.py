"""The clocks of hosts: from least delays between them and from what a mapping declares, to corrections of times.

A clock that is ahead makes what leaves its host seem early and what reaches it seem late. Each time is therefore
brought to one clock: the reference's, or the true time if the mapping declares how far clocks are from it. What traffic
says and what is declared are bounds of the same kind (statistics/_clocks.py), so they are solved together. A clock that
nothing bounds on both sides is an error: a guess would be counted as if it were known.

What remains is an error of each delay, known to be between two ends for each pair of hosts: the scores count what is on
time at both ends. Clocks that tick coarsely (whole milliseconds in a log) round times down, which is in these ends too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import InputError
from tidings.pipeline.ingest._mapping import Clocks
from tidings.statistics import UNBOUNDED_NS, clock_bounds, clock_estimate, clock_rates

__all__ = [
    "BUCKETS",
    "HOSTS_MAX",
    "LEAST_DELAYS",
    "LEGS",
    "SPAN_NS",
    "STEPS_NS",
    "Corrections",
    "find_clocks",
    "least_delays",
]

Array = npt.NDArray[Any]

HOSTS_MAX: Final = 1000
"""More would make a table of pairs that is too large to send to every worker."""
BUCKETS: Final = 64
"""Parts that the log's time is cut into for each pair of hosts, if clocks may drift."""
STEPS_NS: Final = (10**9, 10**6, 10**3, 1)
"""How coarse the times of a log may be."""
SPAN_NS: Final = 1 << 61
"""Times beyond it are no times: differences of others stay within 64 bits."""
_MINUTE_NS: Final = 60 * 10**9
_SHOWN: Final = 3

LEGS: Final = pa.schema(
    [("source", pa.string()), ("target", pa.string()), ("sent_ns", pa.int64()), ("received_ns", pa.int64())]
)
"""From one host to another: when something was sent, and when it was received, each by the clock of its host."""

LEAST_DELAYS: Final = pa.schema(
    [
        ("source", pa.string()),
        ("target", pa.string()),
        ("at_ns", pa.int64()),
        ("least_ns", pa.int64()),
        ("source_step_ns", pa.int64()),
        ("target_step_ns", pa.int64()),
    ]
)
"""From one host to another, in a part of the time: the least that anything seemed to take, when that was sent, and how
coarse the times of either are."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrections:
    """How far each clock is ahead: by `ahead_ns`, give or take `error_ns`, at `origin_ns`, and by `rate` more per unit
    of time after it. Ahead of what: of `reference`, or if that is None of the true time.

    The true delay of what went from host a to host b is the corrected one plus an error between `low_ns[a, b]` and
    `high_ns[a, b]`; hosts are numbered as in `hosts`.
    """

    hosts: tuple[str, ...]
    ahead_ns: Array
    error_ns: Array
    rate: Array
    origin_ns: int
    low_ns: Array
    high_ns: Array
    reference: str | None

    def summary(self) -> dict[str, dict[str, Any]]:
        """By host: how far its clock is ahead and by how much that may be wrong, in seconds."""
        return {
            host: {
                "ahead_s": int(self.ahead_ns[number]) / 1e9,
                "error_s": int(self.error_ns[number]) / 1e9,
                "drift_ppm": float(self.rate[number]) * 1e6,
            }
            for number, host in enumerate(self.hosts)
        }


def least_delays(legs: pa.Table, *, drift: bool) -> pa.Table:
    """LEAST_DELAYS of LEGS: one row for each pair of hosts, or for each of BUCKETS if clocks may drift."""
    rows = legs.drop_null()
    sent, received = rows["sent_ns"].to_numpy(), rows["received_ns"].to_numpy()
    hosts = pa.chunked_array([*rows["source"].chunks, *rows["target"].chunks], pa.string()).unique()
    source, target = (pc.index_in(rows[end], hosts).to_numpy() for end in ("source", "target"))
    near = (np.maximum(np.abs(sent), np.abs(received)) <= SPAN_NS) & (source != target)
    source, target, sent, received = source[near], target[near], sent[near], received[near]
    steps = [np.zeros(len(sent), np.int64), np.zeros(len(sent), np.int64)]
    for step_ns in STEPS_NS[::-1]:  # the coarsest last
        for steps_ns, times in zip(steps, (sent, received), strict=True):
            steps_ns[times % step_ns == 0] = step_ns
    found = (source, target, sent, received - sent, *steps)
    if drift and len(sent):
        # First by the minute, as on Spark, where the rows of a pair have to be few before its span is known.
        found = _least(np.sign(sent) * (np.abs(sent) // _MINUTE_NS), *found)
        at = found[2]
        found = _least((at - at.min()) // (int(np.ptp(at)) // BUCKETS + 1), *found)
    else:
        found = _least(np.zeros(len(sent)), *found)
    names = [hosts.take(pa.array(codes)) for codes in found[:2]]
    return pa.table([*names, *map(pa.array, found[2:])], schema=LEAST_DELAYS)


def _least(part: Array, *rows: Array) -> tuple[Array, ...]:
    """For each pair of hosts and part: the least delay, when that was sent, and the finest steps."""
    source, target, at, least, *steps = rows
    order = np.lexsort((at, least, part, target, source))
    key = np.stack([column[order] for column in (source, target, part)])
    starts = np.flatnonzero(np.concatenate(([True], (key[:, 1:] != key[:, :-1]).any(axis=0)))[: len(order)])
    firsts = order[starts]
    finest = [np.minimum.reduceat(each[order], starts) if len(starts) else each for each in steps]
    return source[firsts], target[firsts], at[firsts], least[firsts], *finest


def find_clocks(asked: Clocks, seen: pa.Table) -> Corrections:
    """The corrections that a mapping asks for, with the least delays (LEAST_DELAYS) that its log shows."""
    hosts = sorted({*seen["source"].to_pylist(), *seen["target"].to_pylist(), *asked.hosts})
    if asked.reference is not None and asked.reference not in hosts:
        raise InputError(f"[clocks] reference = {asked.reference!r}: no row is of this host; there are: {_some(hosts)}")
    if len(hosts) > HOSTS_MAX:
        raise InputError(
            f"[clocks]: {len(hosts):,} hosts, but the clocks of at most {HOSTS_MAX:,} can be compared; name fewer in "
            "`host`, such as the machine in place of the process"
        )
    numbers = {host: number for number, host in enumerate(hosts)}
    seen = seen.sort_by([(name, "ascending") for name in ("source", "target", "at_ns")])  # drift is found numerically
    source, target = (
        np.array([numbers[name] for name in seen[end].to_pylist()], np.int64) for end in ("source", "target")
    )
    at, least = seen["at_ns"].to_numpy(), seen["least_ns"].to_numpy()
    steps = _steps(len(hosts), seen, source, target)
    origin_ns = int(at.min()) if len(at) else 0
    rate = clock_rates(len(hosts), source, target, at, least) if asked.drift else np.zeros(len(hosts))
    steady = least - np.round((rate[target] - rate[source]) * (at - origin_ns)).astype(np.int64)
    most = _bounds(asked, numbers, source, target, steady + steps[target] - 1)
    base = _base(asked, numbers, most)
    is_connected = asked.estimate and _is_connected(len(hosts), source, target)
    ahead, error = _estimate(asked, most, base, is_connected=is_connected)
    within = most[:-1, :-1]
    _require_bounded(hosts, within, base)
    difference = ahead[None, :] - ahead[:, None]
    return Corrections(
        hosts=tuple(hosts),
        ahead_ns=ahead,
        error_ns=error,
        rate=rate - (rate[base] if hosts else 0.0),
        origin_ns=origin_ns,
        low_ns=difference - within - (steps[:, None] - 1),
        high_ns=difference + within.T + (steps[None, :] - 1),
        reference=None if asked.is_anchored or not hosts else hosts[base],
    )


def _bounds(asked: Clocks, numbers: Mapping[str, int], source: Array, target: Array, most_ns: Array) -> Array:
    """What each clock can be ahead of another at most; the last is the true time."""
    true = len(numbers)
    if not asked.estimate:
        source = target = most_ns = np.zeros(0, np.int64)
    edges: list[tuple[int, int, int]] = []
    for host, number in numbers.items():
        clock = asked.hosts.get(host)
        ahead_ns, error_ns = (0, asked.error_ns) if clock is None else (clock.ahead_ns, clock.error_ns)
        if host == asked.reference:
            ahead_ns, error_ns = 0, 0
        if error_ns is not None:
            edges += [(true, number, ahead_ns + error_ns), (number, true, error_ns - ahead_ns)]
    declared = np.array(edges, np.int64).reshape(-1, 3).T
    ends = [np.concatenate(pair) for pair in zip((source, target, most_ns), declared, strict=True)]
    most = clock_bounds(true + 1, *ends)
    wrong = [host for host, number in numbers.items() if most[number, number] < 0]
    if wrong:
        raise InputError(
            f"the clocks of {_some(wrong)} contradict each other: going there and back takes less than no time; a "
            "clock was set or drifts (write drift = true in [clocks]), a declared error is too small, or rows have "
            "wrong times"
        )
    return most


def _base(asked: Clocks, numbers: Mapping[str, int], most: Array) -> int:
    """The host that others are compared with: the reference, or else the one that all others are known by best."""
    if asked.reference is not None or not numbers:
        return numbers[asked.reference] if asked.reference is not None else 0
    among = most[:-1, :-1].astype(np.float64)
    return int(np.argmin((among + among.T).sum(axis=0)))


def _estimate(asked: Clocks, most: Array, base: int, *, is_connected: bool) -> tuple[Array, Array]:
    """How far each clock is ahead, and how far that can be off.

    Without declarations: of the base's clock. With them: of the true time. Of what is possible the middle is taken: for
    each host alone, since what is declared is so in good faith; or where traffic connects all hosts in both directions,
    for the difference of each to the base, and for the base. Both keep all bounds.
    """
    if not asked.is_anchored:
        found = clock_estimate(most[:-1, :-1] if len(most) > 1 else most, base)
        hosts = slice(0, len(most) - 1)
        return found.ahead_ns[hosts], (found.high_ns - found.low_ns + 1)[hosts] // 2
    true = clock_estimate(most, len(most) - 1)
    ahead = true.ahead_ns[:-1]
    if is_connected:
        ahead = clock_estimate(most, base).ahead_ns[:-1] + ahead[base]
    return ahead, np.maximum(true.high_ns[:-1] - ahead, ahead - true.low_ns[:-1])


def _is_connected(hosts: int, source: Array, target: Array) -> bool:
    """Whether traffic goes from each host to each other, if only through third ones."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    talks = coo_array((np.ones(len(source)), (source, target)), shape=(hosts, hosts))
    return bool(connected_components(talks, connection="strong")[0] == 1)


def _require_bounded(hosts: Sequence[str], within: Array, base: int) -> None:
    is_loose = np.maximum(within[base], within[:, base]) >= UNBOUNDED_NS if hosts else np.zeros(0, np.bool_)
    loose = [host for host, is_one in zip(hosts, is_loose.tolist(), strict=True) if is_one]
    if loose:
        raise InputError(
            f"the clocks of {_some(loose)} cannot be estimated: that takes traffic in both directions; declare them "
            f'under [clocks.hosts] ("{loose[0]}" = {{ ahead = "0 ms", error = "5 ms" }}), or write error = "5 ms" in '
            "[clocks] for all"
        )


def _steps(hosts: int, seen: pa.Table, source: Array, target: Array) -> Array:
    """How coarse the times of each host are: as coarse as the finest of what was seen."""
    steps = np.full(hosts, STEPS_NS[0])
    for end, where in (("source_step_ns", source), ("target_step_ns", target)):
        np.minimum.at(steps, where, pc.fill_null(seen[end], 1).to_numpy())
    known = np.zeros(hosts, np.bool_)
    known[source] = known[target] = True
    return np.where(known, steps, 1)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
