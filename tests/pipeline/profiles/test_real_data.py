"""Profiles of data that nobody here made. Skipped where the data is absent.

The directory is TIDINGS_DATA, or ../shared/data beside the repository. docs/reference/profiles.md quotes these figures.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.pipeline.facts import FATES, Facts, tables_of_facts

from tidings.pipeline.measures import PROBABILITIES

from .conftest import ARROW, make_facts

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("TIDINGS_DATA", ROOT.parent / "shared" / "data"))
SECOND = 10**9
MS = 10**6


def data(name: str) -> Path:
    if not (DATA / name).is_file():
        pytest.skip(f"{name} is not in {DATA}; set TIDINGS_DATA to the directory that holds it")
    return DATA / name


def profiled(name: str, facts: Facts) -> pd.DataFrame:
    found: pd.DataFrame = tables_of_facts(facts)[name].to_pandas()
    return found


def with_fates(columns: dict[str, Any]) -> Facts:
    """Facts that are deliveries and no more."""
    names, numbers = np.unique(columns["subscription"], return_inverse=True)
    facts = make_facts(
        subscriptions=[{"subscription": str(name), "number": number} for number, name in enumerate(names)]
    )
    columns = {**columns, "number": numbers.astype(np.int32)}
    known = [tuple(column.split()) for column in FATES.split(", ")]
    nothing = [None] * len(numbers)
    fates = pa.table({name: pa.array(columns.get(name, nothing), ARROW[kind]) for name, kind in known})
    return Facts(**{**vars(facts), "fates": fates})


def test_outages() -> None:
    """54 university services, half a year: outages come in bursts, so up times are far from exponential."""
    watched = pd.read_csv(data("upptime_availability/hosts.csv.gz")).query("source == 'dhbern'")
    outages = pd.read_csv(data("upptime_availability/outages.csv.gz")).query("source == 'dhbern' and server_side == 1")
    moves = [
        {"kind": "broker", "source": row.host, "at_ns": int(at) * SECOND, "up": up}
        for row in outages.itertuples()
        for at, up in ((row.down_s, False), (row.up_s, True))
        if not np.isnan(at) and not (up and row.right_censored)
    ]
    ends = [watched.first_s.min(), watched.last_s.max()]
    facts = make_facts(
        events=[
            {"publisher": "watch", "sequence": n, "chunk": 0, "departure_ns": int(at) * SECOND}
            for n, at in enumerate(ends)
        ],
        topology=[{"kind": "broker", "source": host} for host in watched.host],
        transitions=moves,
    )
    found = profiled("components", facts)
    up_s, down_s = found.up_s.sum(), found.down_s.sum()
    assert (len(found), found.failures.sum()) == (54, 584)
    assert up_s / (up_s + down_s) == pytest.approx(0.9797, abs=5e-5)
    assert up_s / found.failures.sum() / 86_400 == pytest.approx(19.3, abs=0.05)
    assert down_s / found.repairs.sum() / 3_600 == pytest.approx(9.62, abs=0.005)
    tested = found[found.up_p_value.notna()]
    assert len(tested) == 11
    assert (tested.up_p_value < 0.01).sum() == 10
    assert (tested.up_score < 0).all()


@pytest.mark.full
def test_phones_over_umts() -> None:
    rows = pd.read_csv(data("ooo_umts_events/ooo_umts_events.csv.gz"))
    facts = with_fates(
        {
            "publisher": (rows.session + "/" + rows.device).to_numpy(),
            "sequence": rows.seq.to_numpy(),
            "chunk": rows.seq.to_numpy() // (1 << 11),
            "subscription": np.full(len(rows), "server"),
            "departure_ns": rows.send_ms.to_numpy() * MS,
            "arrived_ns": rows.server_recv_ms.to_numpy() * MS,
        },
    )
    found = profiled("pairs", facts)
    assert (len(found), found.matched.sum()) == (39, len(rows))
    medians_ms = found.delay_quantiles_ns.str[PROBABILITIES.index(0.5)] / MS
    assert 20 < medians_ms.min() < medians_ms.max() < 260
    assert found.two_laplace_scale_s.min() == pytest.approx(0.00799, abs=5e-6)
    assert found.two_laplace_scale_s.max() == pytest.approx(0.1074, abs=5e-5)
    # Differences of consecutive delays are near the two-Laplace law; the delays drift and are not near one law.
    assert found.two_laplace_distance.median() == pytest.approx(0.042, abs=0.015)
    assert found.hypoexponential_distance.median() == pytest.approx(0.21, abs=0.03)


@pytest.mark.full
def test_planetlab() -> None:
    rows = pd.read_csv(data("planetlab_rtt/rtt_300nodes_18slices.csv.gz")).iloc[::10]
    delays_ms = rows.filter(like="rtt_ms").to_numpy() / 2
    slices = delays_ms.shape[1]
    facts = with_fates(
        {
            "publisher": np.repeat(rows.src.astype(str).to_numpy(), slices),
            "sequence": np.tile(np.arange(slices), len(rows)),
            "chunk": np.zeros(delays_ms.size, np.int64),
            "subscription": np.repeat(rows.dst.astype(str).to_numpy(), slices),
            "departure_ns": np.zeros(delays_ms.size, np.int64),
            "arrived_ns": np.rint(delays_ms.ravel() * MS).astype(np.int64),
        },
    )
    found = profiled("pairs", facts)
    assert len(found) == len(rows)
    variation = np.sqrt(found.delay_scv)
    assert variation.median() == pytest.approx(0.0151, abs=5e-5)
    assert variation.quantile(0.95) == pytest.approx(0.215, abs=5e-4)
    assert found.delay_mean_s.median() == pytest.approx(0.0682, abs=5e-5)
    # 18 values are within what a sketch holds exactly; most pairs are steady but for a few long ones: one phase.
    phases = found.hypoexponential_rates_per_s.str.len()
    assert (phases == 1).sum() == 2204
