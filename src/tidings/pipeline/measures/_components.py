"""Components: how available brokers and links are, how often they fail and how soon they are repaired.

The estimators and their rules are in `tidings.statistics`. A component is watched for as long as the trace goes: from
the first departure or transition to the last. Every component of the topology has a row, also one that never failed.

Failures are rare, so a partial holds the transitions themselves: they are in the rows of the chunk WITHOUT_EVENT, which
stands for the small tables and is always computed again; those of the other chunks say how long the trace goes.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidings.pipeline.rows import EventRows, grouped, table_of
from tidings.statistics import Periods, Rates, censored_rates, exponentiality, periods, ratio

__all__ = [
    "COMPONENTS",
    "PARTIAL_COMPONENTS",
    "SPANS",
    "finish_components",
    "spans_of",
]

_COMPONENT: Final = ("kind", "source", "target")
PARTIAL_COMPONENTS: Final = (
    "publisher string, chunk bigint, kind string, source string, target string, at_ns bigint, up boolean, "
    "first_ns bigint, last_ns bigint"
)


def _rate_columns(event: str, state: str) -> str:
    return (
        f"{event}s bigint, {state}_s double, {event}_rate_per_s double, {event}_rate_low_per_s double, "
        f"{event}_rate_high_per_s double, {event}s_effective double, {event}_rate_is_rough boolean, "
        f"{state}_score double, {state}_p_value double"
    )


COMPONENTS = (
    "kind string, source string, target string, first_ns bigint, last_ns bigint, availability double, "
    f"{_rate_columns('failure', 'up')}, {_rate_columns('repair', 'down')}"
)


SPANS: Final = "publisher string, chunk bigint, first_ns bigint, last_ns bigint"


def spans_of(events: EventRows) -> pa.Table:
    """From when to when the events of each unit departed (SPANS)."""
    groups = grouped(events.publisher.codes, events.chunk)
    columns = {
        "publisher": events.publisher.at(groups.firsts),
        "chunk": events.chunk[groups.firsts],
        "first_ns": groups.least(events.departure_ns),
        "last_ns": groups.greatest(events.departure_ns),
    }
    return table_of(columns, SPANS)


def finish_components(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    at_ns, up = batch.column("at_ns"), batch.column("up")
    components = batch.num_rows
    # Without a single event or transition nothing was watched: no time, no estimates.
    first_ns, last_ns = (batch.column(name).fill_null(0).to_numpy() for name in ("first_ns", "last_ns"))
    offsets = np.concatenate(([0], np.cumsum(at_ns.value_lengths().to_numpy()))).astype(np.int64)
    lengths = periods(
        offsets, at_ns.flatten().to_numpy(), up.flatten().to_numpy(zero_copy_only=False), first_ns, last_ns
    )
    while_up = censored_rates(lengths, components, up=True, level=level)
    while_down = censored_rates(lengths, components, up=False, level=level)
    return {
        "availability": ratio(while_up.exposure_s, while_up.exposure_s + while_down.exposure_s),
        **_columns("failure", "up", lengths, while_up),
        **_columns("repair", "down", lengths, while_down),
    }


def _columns(event: str, state: str, lengths: Periods, rates: Rates) -> dict[str, Any]:
    test = exponentiality(lengths, len(rates.events), up=state == "up")
    return {
        f"{event}s": rates.events,
        f"{state}_s": rates.exposure_s,
        f"{event}_rate_per_s": rates.rate_per_s,
        f"{event}_rate_low_per_s": rates.low_per_s,
        f"{event}_rate_high_per_s": rates.high_per_s,
        f"{event}s_effective": rates.effective,
        f"{event}_rate_is_rough": rates.is_rough,
        f"{state}_score": test.score,
        f"{state}_p_value": test.p_value,
    }
