"""The on-time share under each scheme (paper D), if something fails.

Failures are those that were measured; if none was seen and a scenario is given that has some, the scenario's. The
scheme `static` is left out: it is `periodic` without refreshes, or, where a crash empties tables, delivers nothing.

A trace does not contain the scheme in force. If a scenario names it, and outages were measured, its R' is what the
measured R is compared with (`InForce`).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidings.errors import TidingsError
from tidings.faults import Scheme
from tidings.model.scenario import Network
from tidings.prediction import (
    Failing,
    Prediction,
    SchemePrediction,
    Unmodelled,
    failing_network,
    failing_profiles,
    from_network,
    predict,
    predict_schemes,
)
from tidings.report.figures._report import SchemeFigures, Schemes

__all__ = ["SCHEMES_SHOWN", "InForce", "schemes_of"]

Source = Literal["measured", "scenario"]
SCHEMES_SHOWN: Final[tuple[Scheme, ...]] = ("periodic", "buffer", "bypass", "bypass+buffer")


class InForce(NamedTuple):
    """The scheme that the run had, and R' by subscription with outages counted in, but for what is left out."""

    scheme: Scheme
    reliability: NDArray[np.float64]
    unmodelled: tuple[Unmodelled, ...]


def schemes_of(
    prediction: Prediction, tables: Mapping[str, pa.Table], network: Network | None, names: Collection[str]
) -> tuple[Schemes | None, InForce | None]:
    """Nothing if nothing is known to fail."""
    if any(row["failures"] for row in tables["components"].to_pylist()):
        # Only a scenario states how often subscriptions are refreshed, and whether tables survive a crash.
        failing = failing_profiles(tables)
        if network is not None:
            faults = network.policies.faults
            failing = replace(failing, refresh_s=faults.refresh_s, has_durable_tables=faults.has_durable_tables)
        schemes, answers = _predicted(prediction, failing, "measured", names)
        answer = None if network is None else answers.get(network.policies.faults.scheme)
        if answer is None:
            return schemes, None
        return schemes, InForce(answer.scheme, answer.reliability, answer.unmodelled)
    if network is not None and any(each is not None for each in (*network.broker_failures, *network.link_failures)):
        return _predicted(predict(from_network(network)), failing_network(network), "scenario", names)[0], None
    return None, None


def _predicted(
    prediction: Prediction, failing: Failing, source: Source, names: Collection[str]
) -> tuple[Schemes, dict[Scheme, SchemePrediction]]:
    found, left_out = dict[Scheme, SchemePrediction](), dict[str, str]()
    for scheme in SCHEMES_SHOWN:
        try:
            found |= predict_schemes(prediction, failing, schemes=(scheme,))
        except TidingsError as error:
            left_out[scheme] = str(error)
    schemes = tuple(_figures(prediction, answer, names) for answer in found.values())
    unmodelled = tuple(dict.fromkeys(each for answer in found.values() for each in answer.unmodelled))
    return Schemes(
        source=source,
        refresh_s=failing.refresh_s,
        has_durable_tables=failing.has_durable_tables,
        schemes=schemes,
        left_out=left_out,
        unmodelled=unmodelled,
    ), found


def _figures(prediction: Prediction, answer: SchemePrediction, names: Collection[str]) -> SchemeFigures:
    rate, known = prediction.matched_per_s, ~np.isnan(answer.reliability)
    total = float(rate[known].sum())
    wanted = set(names)
    shares = zip(prediction.knowledge.subscriptions, answer.reliability.tolist(), strict=True)
    return SchemeFigures(
        scheme=answer.scheme,
        reliability=float((rate * answer.reliability)[known].sum()) / total if total > 0.0 else 0.0,
        messages_per_event=answer.overhead.messages,
        stored_events=answer.overhead.stored_mean_events,
        by_subscription={name: share for name, share in shares if name in wanted and not math.isnan(share)},
    )
