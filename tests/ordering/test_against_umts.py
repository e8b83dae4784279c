"""Real events that came out of order: phones on a public UMTS network, at one server (Weiss et al., IoTBDS 2017).

All phones of a session count as one publisher, whose events are numbered in the order in which they were sent.
"""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from tidings.ordering import Policy, Replayed, Streams, replay

DATA = Path(__file__).parents[3] / "shared" / "data" / "ooo_umts_events" / "ooo_umts_events.csv.gz"
NAMES = ("P-0.05-0", "P-0.001-0", "P-0.0001-0", "CST-30", "CST-300", "ours-quantile", "Q-0.95")
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the UMTS data set is not beside the repository")


def streams_of() -> Streams:
    """One stream for each session."""
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    parts = []
    for session in sorted({row["session"] for row in rows}):
        sent, came = (
            np.array([int(row[name]) for row in rows if row["session"] == session]) * 1_000_000
            for name in ("send_ms", "server_recv_ms")
        )
        number = np.empty(sent.size, np.int64)
        number[np.argsort(sent, kind="stable")] = np.arange(sent.size)
        order = np.argsort(came, kind="stable")
        before = np.sort(sent)[np.maximum(number - 1, 0)]
        parts.append((number[order], sent[order], before[order], came[order]))
    columns = [np.concatenate([part[k] for part in parts]).astype(np.int64) for k in range(4)]
    nowhere = np.zeros(len(parts), np.int64)
    starts = np.concatenate([[0], np.cumsum([part[0].size for part in parts])]).astype(np.int64)
    nothing = np.zeros(0, np.int64)
    return Streams(starts, *columns, nowhere, nothing, np.zeros(len(starts), np.int64), nothing)


def test_the_reference_says_what_came_out() -> None:
    """docs/reference/ordering.md, the table of the real data."""
    found = replay(streams_of(), [Policy.parse(name) for name in NAMES])
    page = (Path(__file__).parents[2] / "docs" / "reference" / "ordering.md").read_text("utf-8")
    for name, one in found.items():
        assert row_of(name, one) in page


def row_of(name: str, one: Replayed) -> str:
    assert one.total("received").sum() == 46_800
    assert one.total("out_of_order").sum() == 11_735
    assert one.mitigation is not None
    return f"| `{name}` | {100.0 * one.mitigation:.1f} | {one.mean_hold_ns / 1e6:.1f} |"


if __name__ == "__main__":
    for name, one in replay(streams_of(), [Policy.parse(name) for name in NAMES]).items():
        print(row_of(name, one))
