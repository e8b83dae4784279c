"""Filters are sets of numbers here and an event is one number, so matching, covering and intersection are exact."""

from collections import Counter, defaultdict, deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.routing import (
    LOCAL,
    Advertise,
    BrokerRouting,
    Propagation,
    Subscribe,
    Unsubscribe,
    forwarding_set,
    overlay_of_links,
    plan_dissemination,
    relation_of_matrix,
    shortest_path_trees,
)

EVENTS = 6
SEEDS = st.integers(0, 2**32 - 1)


class World:
    """Filters by name, with relations that sometimes do not know (never wrongly say yes or no)."""

    def __init__(self, rng: np.random.Generator, *, unknown: float) -> None:
        self.filters: dict[str, frozenset[int]] = {}
        self._rng = rng
        self._unknown = unknown
        self._said: dict[tuple[str, str, str], bool] = {}

    def draw(self, name: str) -> str:
        size = int(self._rng.integers(0, EVENTS + 1))
        self.filters[name] = frozenset(self._rng.permutation(EVENTS)[:size].tolist())
        return name

    def _knows(self, *question: str) -> bool:
        return self._said.setdefault(question, bool(self._rng.random() >= self._unknown))

    def covers(self, one: str, other: str) -> bool | None:
        return self.filters[one] >= self.filters[other] if self._knows("covers", one, other) else None

    def intersects(self, advertisement: str, subscription: str) -> bool | None:
        meet = not self.filters[advertisement].isdisjoint(self.filters[subscription])
        return meet if self._knows("intersects", advertisement, subscription) else None


def check_deliveries(propagation: Propagation, world: World, homes: dict, adverts: dict, with_adverts: bool) -> None:
    for publisher in range(len(propagation.plan.roots)):
        for event in range(EVENTS):
            promised = any(event in world.filters[a] for a, p in adverts.items() if p == publisher)
            if with_adverts and not promised:
                continue
            matched = [s for s in world.filters if event in world.filters[s]]
            journey = propagation.route(publisher, matched)
            assert len(set(journey.hops)) == len(journey.hops)
            expected = Counter((home, s) for s, home in homes.items() if event in world.filters[s])
            assert Counter(journey.deliveries) == expected


@settings(deadline=None)  # the first call compiles
@given(
    seed=SEEDS,
    brokers=st.integers(1, 9),
    extra=st.integers(0, 6),
    publishers=st.integers(1, 4),
    steps=st.integers(1, 25),
    with_adverts=st.booleans(),
    with_covering=st.booleans(),
    unknown=st.sampled_from([0.0, 0.5]),
)
def test_every_event_reaches_exactly_the_matching_subscribers(
    make_overlay, seed, brokers, extra, publishers, steps, with_adverts, with_covering, unknown
) -> None:
    overlay = make_overlay(seed, brokers, extra)
    rng = np.random.default_rng(seed)
    world = World(rng, unknown=unknown)
    trees = shortest_path_trees(overlay, rng.integers(0, brokers, publishers).tolist())
    propagation = Propagation(
        trees,
        intersects=world.intersects if with_adverts else None,
        covers=world.covers if with_covering else None,
    )
    homes: dict[str, int] = {}
    adverts: dict[str, int] = {}
    for step in range(steps):
        choice = rng.random()
        if choice < 0.3 and homes:
            name = str(rng.choice(sorted(homes)))
            propagation.unsubscribe(name)
            del homes[name]
        elif choice < 0.5 and with_adverts:
            name = world.draw(f"a{step}")
            adverts[name] = int(rng.integers(0, publishers))
            propagation.advertise(name, adverts[name])
        elif choice < 0.6 and adverts:
            name = str(rng.choice(sorted(adverts)))
            propagation.unadvertise(name)
            del adverts[name]
        else:
            name = world.draw(f"s{step}")
            homes[name] = int(rng.integers(0, brokers))
            propagation.subscribe(name, homes[name])
        check_deliveries(propagation, world, homes, adverts, with_adverts)
    for name in sorted(homes):
        propagation.unsubscribe(name)
    assert all(propagation.table(b, p) == {} for b in range(brokers) for p in range(publishers))


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(2, 8), extra=st.integers(0, 5), with_covering=st.booleans())
def test_any_interleaving_on_links_that_keep_order_ends_well(make_overlay, seed, brokers, extra, with_covering) -> None:
    overlay = make_overlay(seed, brokers, extra)
    rng = np.random.default_rng(seed)
    world = World(rng, unknown=0.3)
    propagation = Propagation(
        shortest_path_trees(overlay, rng.integers(0, brokers, 3).tolist()),
        intersects=world.intersects,
        covers=world.covers if with_covering else None,
    )
    plan, routers = propagation.plan, propagation.brokers
    links: dict[tuple[int, int], deque] = defaultdict(deque)
    homes: dict[str, int] = {}
    adverts: dict[str, int] = {}

    def send(broker: int, outgoing: tuple) -> None:
        for neighbour, message in outgoing:
            links[broker, neighbour].append(message)

    def act(step: int) -> None:
        choice = rng.random()
        if choice < 0.25 and homes:
            name = str(rng.choice(sorted(homes)))
            home = homes.pop(name)
            send(home, routers[home].unsubscribe(name))
        elif choice < 0.5:
            name, publisher = world.draw(f"a{step}"), int(rng.integers(0, 3))
            adverts[name] = publisher
            root = plan.roots[publisher]
            send(root, routers[root].advertise(name, plan.shared_tree[publisher]))
        elif choice < 0.6 and adverts:
            name = str(rng.choice(sorted(adverts)))
            publisher = adverts.pop(name)
            root = plan.roots[publisher]
            send(root, routers[root].unadvertise(name, plan.shared_tree[publisher]))
        else:
            name = world.draw(f"s{step}")
            homes[name] = int(rng.integers(0, brokers))
            send(homes[name], routers[homes[name]].subscribe(name))

    actions = 20
    while actions or any(links.values()):
        busy = sorted(link for link, queue in links.items() if queue)
        if actions and (not busy or rng.random() < 0.2):
            act(actions)
            actions -= 1
        else:
            source, target = busy[int(rng.integers(0, len(busy)))]
            send(target, routers[target].receive(links[source, target].popleft(), source))
    check_deliveries(propagation, world, homes, adverts, True)


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 12), extra=st.integers(0, 10))
def test_journeys_are_the_static_forwarding_sets(make_overlay, seed, brokers, extra) -> None:
    overlay = make_overlay(seed, brokers, extra)
    rng = np.random.default_rng(seed)
    trees = shortest_path_trees(overlay, rng.integers(0, brokers, 3).tolist())
    propagation = Propagation(trees)
    homes = rng.integers(0, brokers, 8).tolist()
    for subscription, home in enumerate(homes):
        propagation.subscribe(subscription, home)
    matched = np.flatnonzero(rng.random(8) < 0.4).tolist()
    for publisher, tree in enumerate(trees):
        journey = propagation.route(publisher, matched)
        links = forwarding_set(tree, [homes[s] for s in matched])
        taken = overlay.links_between([a for a, _ in journey.hops], [b for _, b in journey.hops])
        assert sorted(taken.tolist()) == sorted(links)


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(2, 9), extra=st.integers(0, 6))
def test_repeating_a_message_changes_nothing(make_overlay, seed, brokers, extra) -> None:
    rng = np.random.default_rng(seed)
    propagation = Propagation(
        shortest_path_trees(make_overlay(seed, brokers, extra), [0, brokers - 1]), intersects=lambda _a, _s: None
    )
    letters = list(propagation.advertise("a", 0))
    letters += [x for s in range(4) for x in propagation.subscribe(s, int(rng.integers(0, brokers)))]
    for letter in letters:
        assert propagation.brokers[letter.target].receive(letter.message, letter.source) == ()


LINE = overlay_of_links(4, [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0)], both_ways=True)


def test_on_a_tree_a_subscription_crosses_each_connection_once_for_all_publishers() -> None:
    propagation = Propagation(shortest_path_trees(LINE, [0, 1, 3]))
    assert propagation.plan.shared_tree == (0, 0, 0)
    sent = propagation.subscribe("s", 2)
    assert [(x.source, x.target) for x in sent] == [(2, 1), (2, 3), (1, 0)]
    assert propagation.messages_per_link == {(2, 1): 1, (2, 3): 1, (1, 0): 1}
    assert propagation.table(1, 0) == {"s": 2}
    assert propagation.table(2, 0) == {"s": LOCAL}


def test_without_publishers_that_way_nothing_is_sent() -> None:
    propagation = Propagation(shortest_path_trees(LINE, [1]))
    assert [(x.source, x.target) for x in propagation.subscribe("s", 3)] == [(3, 2), (2, 1)]


def test_in_a_mesh_one_message_serves_all_trees_behind_a_neighbour() -> None:
    ring = overlay_of_links(4, [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 0, 1.5)], both_ways=True)
    propagation = Propagation(shortest_path_trees(ring, [0, 1]))
    assert propagation.plan.shared_tree == (0, 1)
    sent = propagation.subscribe("s", 2)
    assert sent[0].message == Subscribe(subscription="s", trees=(0, 1))
    assert [(x.source, x.target) for x in sent] == [(2, 1), (1, 0)]


def test_advertisements_draw_only_what_may_intersect() -> None:
    matrix = np.array([[True, False]])
    propagation = Propagation(shortest_path_trees(LINE, [0]), intersects=relation_of_matrix(matrix))
    assert propagation.subscribe(0, 2) == ()
    assert propagation.subscribe(1, 2) == ()
    sent = propagation.advertise(0, 0)
    assert [(x.source, x.target) for x in sent if isinstance(x.message, Advertise)] == [(0, 1), (1, 2), (2, 3)]
    drawn = [(x.source, x.target, x.message.subscription) for x in sent if isinstance(x.message, Subscribe)]
    assert drawn == [(2, 1, 0), (1, 0, 0)]
    gone = propagation.unadvertise(0)
    assert sum(isinstance(x.message, Unsubscribe) for x in gone) == 2
    assert propagation.table(1, 0) == {}
    assert propagation.table(2, 0) == {0: LOCAL, 1: LOCAL}


def test_the_covered_stay_behind_and_follow_when_the_coverer_leaves() -> None:
    matrix = np.triu(np.ones((3, 3), bool))  # 0 covers 1 covers 2
    propagation = Propagation(shortest_path_trees(LINE, [0]), covers=relation_of_matrix(matrix))
    assert len(propagation.subscribe(0, 3)) == 3
    assert len(propagation.subscribe(1, 2)) == 0
    assert len(propagation.subscribe(2, 1)) == 0
    assert propagation.table(0, 0) == {0: 1}
    assert propagation.route(0, [2]).deliveries == ()  # an event that only 2 matches would contradict the relation
    assert set(propagation.route(0, [0, 1, 2]).deliveries) == {(3, 0), (2, 1), (1, 2)}
    sent = [(x.source, x.target, x.message) for x in propagation.unsubscribe(0)]
    assert sent == [
        (3, 2, Unsubscribe(subscription=0, trees=(0,))),
        (2, 1, Subscribe(subscription=1, trees=(0,))),
        (2, 1, Unsubscribe(subscription=0, trees=(0,))),
        # Broker 1 learns of 1 while 0 still stands for it upstream; only then does 0 go, and 1 and 2 are weighed anew.
        (1, 0, Subscribe(subscription=2, trees=(0,))),
        (1, 0, Subscribe(subscription=1, trees=(0,))),
        (1, 0, Unsubscribe(subscription=0, trees=(0,))),
    ]
    assert set(propagation.route(0, [1, 2]).deliveries) == {(2, 1), (1, 2)}


def test_covering_saves_messages_and_changes_no_delivery() -> None:
    rng = np.random.default_rng(5)
    filters = [frozenset(rng.permutation(EVENTS)[: int(rng.integers(1, EVENTS))].tolist()) for _ in range(40)]
    matrix = np.array([[one >= other for other in filters] for one in filters])
    trees = shortest_path_trees(LINE, [0, 3])
    plain, covering = Propagation(trees), Propagation(trees, covers=relation_of_matrix(matrix))
    for subscription in range(40):
        home = int(rng.integers(0, 4))
        plain.subscribe(subscription, home)
        covering.subscribe(subscription, home)
    assert covering.messages_per_link.total() < 0.8 * plain.messages_per_link.total()
    for event in range(EVENTS):
        matched = [s for s in range(40) if event in filters[s]]
        assert sorted(plain.route(0, matched).deliveries) == sorted(covering.route(0, matched).deliveries)


def test_a_subscription_that_turns_up_elsewhere_has_moved() -> None:
    view = plan_dissemination(shortest_path_trees(LINE, [0])).views[1]
    router = BrokerRouting(view)
    assert router.receive(Subscribe(subscription="s", trees=(0,)), 2) == ((0, Subscribe(subscription="s", trees=(0,))),)
    assert router.subscribe("s") == ()  # upstream nothing changes
    assert router.table(0) == {"s": LOCAL}
    assert router.receive(Unsubscribe(subscription="s", trees=(0,)), 2) == ()  # the old side no longer counts
    assert router.table(0) == {"s": LOCAL}


def test_misuse_is_named() -> None:
    propagation = Propagation(shortest_path_trees(LINE, [0]))
    propagation.subscribe("s", 1)
    with pytest.raises(InputError, match="'s' is already held at broker 1"):
        propagation.subscribe("s", 2)
    with pytest.raises(InputError, match="no subscription 't'"):
        propagation.unsubscribe("t")
    with pytest.raises(InputError, match=r"brokers are 0\.\.3"):
        propagation.subscribe("u", 4)
    with pytest.raises(InputError, match="with `intersects`"):
        propagation.advertise("a", 0)
    with pytest.raises(InputError, match="no advertisement 'a'"):
        propagation.unadvertise("a")
    with pytest.raises(InputError, match="publisher 1 has no tree"):
        propagation.route(1, ["s"])
    with pytest.raises(InputError, match="tree 0 from 3, which is not its neighbour"):
        propagation.brokers[0].receive(Subscribe(subscription="x", trees=(0,)), 3)
    with pytest.raises(InputError, match="at least one publisher's tree"):
        Propagation([])
