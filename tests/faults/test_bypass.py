"""Detours around what is down."""

from hypothesis import given
from hypothesis import strategies as st

from tidings.faults import bypass_targets

# 0 - 1 - 2 - 3
#      \- 4
PARENT = [-1, 0, 1, 2, 1]


def test_the_first_on_each_way_that_can_be_reached() -> None:
    assert bypass_targets(PARENT, 1, [3, 4], {2, 3, 4}) == (2, 4)
    assert bypass_targets(PARENT, 1, [3, 4], {3}) == (3,)
    assert bypass_targets(PARENT, 1, [3], {2, 4}) == (2,)
    assert bypass_targets(PARENT, 1, [1], {2, 3, 4}) == ()
    assert bypass_targets(PARENT, 1, [3, 4], set()) == ()


def test_a_child_behind_a_broken_link_gets_it_itself() -> None:
    assert bypass_targets(PARENT, 1, [3, 4], {1, 2, 3, 4}) == (1,)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], int, list[int], set[int]]:
    size = draw(st.integers(2, 12))
    parent = [-1, *(draw(st.integers(0, number - 1)) for number in range(1, size))]
    child = draw(st.integers(1, size - 1))
    below = [broker for broker in range(size) if child in upwards(parent, broker)]
    homes = draw(st.lists(st.sampled_from(below), min_size=1, unique=True))
    return parent, child, homes, draw(st.sets(st.integers(1, size - 1)))


def upwards(parent: list[int], broker: int) -> list[int]:
    path = [broker]
    while parent[path[-1]] >= 0:
        path.append(parent[path[-1]])
    return path


@given(trees())
def test_everybody_who_can_be_served_is_served_once(case: tuple[list[int], int, list[int], set[int]]) -> None:
    parent, child, homes, reachable = case
    targets = bypass_targets(parent, child, homes, reachable)
    for home in homes:
        path = upwards(parent, home)
        way = path[: path.index(child) + 1]
        serving = [broker for broker in way if broker in targets]
        assert bool(serving) == any(broker in reachable for broker in way)
        # What lies above the one that serves this home cannot be reached, so no target is below another on one way.
        assert len(serving) <= 1
    assert set(targets) <= reachable
