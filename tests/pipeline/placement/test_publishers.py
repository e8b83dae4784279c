"""Rows of publishers as workers read them, without Spark: bits, promises, trees of meshes, and who is where."""

import numpy as np
import pyarrow as pa

from tidings.pipeline.placement._network import _present
from tidings.pipeline.placement._publishers import traced_in
from tidings.routing import Overlay, overlay_of_links

RING = overlay_of_links(("a", "b", "c", "d"), [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 0, 1.0)], both_ways=True)
BITS = pa.list_(pa.struct({"at": pa.int32(), "word": pa.int32(), "bits": pa.int64(), "deliveries": pa.int64()}))
WANTED = pa.list_(pa.struct({"at": pa.int32(), "deadline_ns": pa.int64(), "promised": pa.int64()}))
USED = pa.list_(pa.struct({"link": pa.int32(), "receptions": pa.int64()}))


def link(source: int, target: int, overlay: Overlay = RING) -> int:
    return int(overlay.links_between([source], [target])[0])


def rows() -> pa.Table:
    """p at a, read at c by way of b, with the last bit of a word set; q at b, of which nothing is known."""
    used = [{"link": link(0, 1), "receptions": 5}, {"link": link(1, 2), "receptions": 5}]
    return pa.table(
        {
            "publisher": pa.array(["p", "q"]),
            "home": pa.array([0, 1], pa.int32()),
            "target": pa.array([2, 1], pa.int32()),
            "words": pa.array([2, 1], pa.int32()),
            "rate_per_s": pa.array([3.0, 1.0]),
            "ping_ns": pa.array([7, 0]),
            "traced": pa.array([100, 50]),
            "bits": pa.array([[{"at": 2, "word": 1, "bits": -(2**63) + 1, "deliveries": 4}], []], BITS),
            "wanted": pa.array(
                [
                    [
                        {"at": 2, "deadline_ns": None, "promised": 1},
                        {"at": 2, "deadline_ns": 2_000_000, "promised": 3},
                    ],
                    [],
                ],
                WANTED,
            ),
            "used": pa.array([used, []], USED),
        }
    )


def test_a_row_is_a_publisher() -> None:
    (_, first), (_, second) = traced_in(rows(), RING)
    assert (first.name, first.home, first.traced, first.ping_ns, first.rate_per_s) == ("p", 0, 100, 7, 3.0)
    assert first.bits[2].tolist() == [0, 2**63 + 1]
    assert first.bits.sum(dtype=object) == 2**63 + 1
    assert first.deliveries.tolist() == [0, 0, 4, 0]
    assert first.wanted.deadline_s.tolist() == [np.inf, 0.002]
    assert first.tree.path(2) == (0, 1, 2)
    assert 3 not in first.tree  # its events never went there
    assert second.deliveries.sum() == 0
    assert second.tree.order.tolist() == [1]


def test_at_its_target_events_go_back_the_way_they_came() -> None:
    (row, first), _ = traced_in(rows(), RING, from_target=True)
    assert row["target"] == first.home == 2
    assert first.tree.path(0) == (2, 1, 0)


def test_a_subscriber_is_where_the_subscription_is_that_it_still_has() -> None:
    owners = [("s", "a"), ("s", "b"), ("t", "a"), ("u", "c"), ("u", "d")]
    assert _present(owners, [0, 5, 0, 3, 9], [5, None, 8, None, None]) == {"s": "b", "u": "d"}
