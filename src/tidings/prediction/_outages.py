"""Measured failures: recorded outages become the transitions of a trace, and profiles become failures.

`transitions_of_outages` turns recorded outages into the table `transitions` of a trace; the pipeline checks and
profiles it with the rest (docs/reference/profiles.md, `components`); `failing_profiles` makes failures from the
profiles.

A component's mean times are those of its profile: exposed time divided by events, which includes periods cut by the
trace. The shape is the most likely of exponential, Weibull and log-normal (`tidings.statistics`) if at least
FEWEST_EVENTS periods began and ended inside the trace, otherwise exponential. A component without a failure in the
trace never fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidings.errors import InputError
from tidings.model.distributions import DelayDistribution, Exponential, LogNormal, Weibull
from tidings.model.failures import Failures
from tidings.model.tables import table_place
from tidings.model.trace import TABLES
from tidings.prediction._failures import Failing
from tidings.prediction._profiles import brokers_of_topology
from tidings.statistics import FEWEST_EVENTS, fit_durations, periods

__all__ = ["failing_profiles", "read_components", "transitions_of_outages"]

Component = tuple[str, str, str | None]


def transitions_of_outages(
    brokers: Sequence[str], down_s: Sequence[float], up_s: Sequence[float | None], *, origin_s: float = 0.0
) -> pa.Table:
    """The table `transitions` of a trace: each broker down at one time and up again at another (None: still down).

    `origin_s` becomes time 0. Overlapping outages of one broker are merged.
    """
    if not len(brokers) == len(down_s) == len(up_s):
        raise InputError(
            f"{len(brokers)} brokers, {len(down_s)} beginnings and {len(up_s)} ends of outages: give one of each"
        )
    moves: list[tuple[str, int, bool]] = []
    for broker in dict.fromkeys(brokers):
        own = sorted((down_s[k], _end(up_s[k])) for k in range(len(brokers)) if brokers[k] == broker)
        until = -np.inf
        for begin, end in own:
            if end < begin:
                raise InputError(f"broker {broker!r} is up again at {end!r} s, before it went down at {begin!r} s")
            if begin > until:
                if np.isfinite(until):
                    moves.append((broker, _ns(until - origin_s), True))
                moves.append((broker, _ns(begin - origin_s), False))
            until = max(until, end)
        if np.isfinite(until):
            moves.append((broker, _ns(until - origin_s), True))
    moves.sort(key=lambda move: move[1])
    schema = TABLES["transitions"]
    columns = {
        "kind": ["broker"] * len(moves),
        "source": [broker for broker, _, _ in moves],
        "target": [None] * len(moves),
        "at_ns": [at for _, at, _ in moves],
        "up": [up for _, _, up in moves],
    }
    return pa.table(columns, schema=schema)


def _end(up_s: float | None) -> float:
    return np.inf if up_s is None or np.isnan(up_s) else float(up_s)


def _ns(time_s: float) -> int:
    return round(time_s * 1e9)


def read_components(directory: Path) -> dict[str, pa.Table]:
    """The tables `components` and `transitions` of a pipeline run's directory; an InputError if one is missing."""
    return {name: pq.read_table(table_place(directory, name)) for name in ("components", "transitions")}


@dataclass(frozen=True, eq=False)
class _Times:
    """For one component: the periods in a state that began inside the trace, and which of them ended inside."""

    lengths_s: np.ndarray
    ended: np.ndarray


def failing_profiles(
    tables: Mapping[str, pa.Table],
    *,
    check_s: float = 0.0,
    refresh_s: float = 600.0,
    timeout_s: float = 86_400.0,
    has_durable_tables: bool = True,
) -> Failing:
    """The failures that the pipeline measured, from the tables `components`, `transitions` and `topology`.

    `check_s` is the interval of the checks that found the transitions; 0 if these are exact. A trace does not record
    refreshes and tables: these are as in live brokers unless given.
    """
    topology = tables["topology"].to_pylist()
    ends = [(row["source"], row["target"]) for row in topology if row["kind"] == "link"]
    times = _times(tables["transitions"], tables["components"])
    found: dict[Component, Failures | None] = {}
    for row in tables["components"].to_pylist():
        key = row["kind"], row["source"], row["target"]
        found[key] = _failures(row, times.get(key), check_s)
    links = tuple(found.get(("link", *pair)) for pair in ends)
    distributions = dict(zip(ends, links, strict=True))
    numbers: dict[Any, int] = {}
    # Equal failures in both directions are one failure of the connection.
    keys = [frozenset(pair) if distributions.get(pair[::-1], "none") == distributions[pair] else pair for pair in ends]
    return Failing(
        brokers=tuple(found.get(("broker", name, None)) for name in brokers_of_topology(tables["topology"])),
        links=links,
        components=tuple(numbers.setdefault(key, len(numbers)) for key in keys),
        refresh_s=refresh_s,
        timeout_s=timeout_s,
        has_durable_tables=has_durable_tables,
    )


def _times(transitions: pa.Table, components: pa.Table) -> dict[Component, dict[bool, _Times]]:
    """By component and state (up or not): the times in it."""
    moves: dict[Component, list[tuple[int, bool]]] = {}
    for row in transitions.to_pylist():
        moves.setdefault((row["kind"], row["source"], row["target"]), []).append((row["at_ns"], row["up"]))
    rows = [row for row in components.to_pylist() if row["first_ns"] is not None]
    keys = [(row["kind"], row["source"], row["target"]) for row in rows]
    own = [sorted(set(moves.get(key, []))) for key in keys]
    flat = [move for each in own for move in each]
    lengths = periods(
        np.cumsum([0, *map(len, own)]).astype(np.int64),
        np.array([at for at, _ in flat], np.int64),
        np.array([up for _, up in flat], np.bool_),
        np.array([row["first_ns"] for row in rows], np.int64),
        np.array([row["last_ns"] for row in rows], np.int64),
    )
    found: dict[Component, dict[bool, _Times]] = {}
    for number, key in enumerate(keys):
        found[key] = {}
        for state in (True, False):
            kept = (lengths.component == number) & (lengths.up == state) & lengths.began & (lengths.length_s > 0.0)
            found[key][state] = _Times(lengths.length_s[kept], lengths.ended[kept])
    return found


def _failures(row: Mapping[str, Any], times: Mapping[bool, _Times] | None, check_s: float) -> Failures | None:
    known = Failures.from_profile(row)
    if known is None or times is None:
        return known
    return Failures(up=_shaped(known.up, times[True], check_s), down=_shaped(known.down, times[False], check_s))


def _shaped(known: DelayDistribution, times: _Times, check_s: float) -> DelayDistribution:
    """The most likely distribution for these times, scaled to the known mean."""
    if int(times.ended.sum()) < FEWEST_EVENTS:
        return known
    distribution = fit_durations(times.lengths_s, times.ended, check_s=check_s)[0].distribution
    factor = known.mean() / distribution.mean()
    match distribution:
        case Weibull(scale=scale, shape=shape):
            return Weibull(scale=scale * factor, shape=shape)
        case LogNormal(median=median, sigma=sigma):
            return LogNormal(median=median * factor, sigma=sigma)
        case _:
            return Exponential(scale=known.mean())
