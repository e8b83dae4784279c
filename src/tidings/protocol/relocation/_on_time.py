"""On-time placement in the overlay: the home from which the largest share of a publisher's deliveries would be on time.

Rules:

- The home broker asks no other broker. For `relocation_events` events with receivers it records the receivers, their
  deadlines and their prices, from the courses. The times of links are known from the link state.
- Brokers are compared by `placement.choose_on_time`, as in the simulator, with deliveries weighted by their prices: by
  the tree of the present home, and the chosen broker once more by its own tree.
- So a move raises one figure, the on-time share by a broker's own tree, by more than `relocation_hysteresis`. While
  links and subscriptions stay the same, no publisher returns to a former home.
- A decision takes time, and events wait for it: there is one at a time, and the next not before `_APART_NS +
  _APART_PER_BROKER_NS` for each broker of the overlay. At most `_MOST_PROMISES` promises, those worth most, are
  considered.

Unknown times are assumed to be the same everywhere: from the publisher to its home, and from a broker to its clients.
Clients measure the link to their home only.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from tidings import placement
from tidings.protocol import wire
from tidings.protocol._names import broker_of
from tidings.protocol._settings import BrokerSettings

if TYPE_CHECKING:
    from tidings.protocol.broker._courses import Course
    from tidings.protocol.broker._held import Held
    from tidings.protocol.broker._link_state import LinkStateMap
    from tidings.routing import Overlay, Tree

__all__ = ["Asked", "OnTime", "better_home", "warm_up"]

_APART_NS: Final = 100_000_000
_APART_PER_BROKER_NS: Final = 1_000_000
_MOST_PROMISES: Final = 256


class Asked(NamedTuple):
    """Deliveries requested at one broker within one deadline: how many, and their total worth."""

    broker: str
    deadline_ns: int
    deliveries: int
    worth: float


class _Sample:
    """Events of one publisher: their courses, each with the numbers of its events as bits, and their size."""

    __slots__ = ("courses", "events", "size_bytes")

    def __init__(self) -> None:
        self.courses: dict[int, tuple[Course, int]] = {}
        self.events = 0
        self.size_bytes = 0

    def add(self, course: "Course", size_bytes: int) -> None:
        known = self.courses.get(id(course))
        self.courses[id(course)] = (course, (0 if known is None else known[1]) | 1 << self.events)
        self.events += 1
        self.size_bytes += size_bytes


class OnTime:
    """One broker's part."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        links: "LinkStateMap",
        ask_to_move: Callable[[str, str], bool],
        rest: Callable[[str], None],
        times_ns: Callable[[str], tuple[int, int]],
        wake_at: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._links = links
        self._ask_to_move = ask_to_move
        self._rest = rest
        self._times_ns = times_ns
        self._wake_at = wake_at
        self._samples: dict[str, _Sample] = {}
        self._due: dict[str, None] = {}  # publishers with complete samples, first come first served
        self._next_ns = 0

    def __len__(self) -> int:
        return len(self._samples)

    def note(self, held: "Held", now_ns: int) -> None:
        """An event was published here."""
        publisher = held.id[0]
        if held.course.is_unwanted or publisher in self._due:
            return
        sample = self._samples.get(publisher)
        if sample is None:
            sample = self._samples[publisher] = _Sample()
            while len(self._samples) > self._settings.max_traces:
                self.forget(next(iter(self._samples)))
        sample.add(held.course, held.size_bytes)
        if sample.events >= self._settings.relocation_events:
            self._due[publisher] = None
            self._wake_at(max(now_ns, self._next_ns))

    def on_time(self, now_ns: int) -> None:
        """Decide about the publisher that has waited longest, if it is time."""
        if self._due and now_ns >= self._next_ns:
            publisher = next(iter(self._due))
            del self._due[publisher]
            sample = self._samples.pop(publisher)
            self._next_ns = now_ns + _APART_NS + _APART_PER_BROKER_NS * len(self._links)
            self._rest(publisher)
            if self._due:
                self._wake_at(self._next_ns)
            target = self._decide(publisher, sample)
            if target != self._settings.name:
                self._ask_to_move(publisher, target)
        elif self._due:
            self._wake_at(self._next_ns)

    def forget(self, publisher: str) -> None:
        """A client is no longer at home here."""
        self._samples.pop(publisher, None)
        self._due.pop(publisher, None)

    def _decide(self, publisher: str, sample: _Sample) -> str:
        name = self._settings.name
        bits: dict[str, int] = {}
        for course, numbers in sample.courses.values():
            for target in course.targets:
                bits[broker_of(target)] = bits.get(broker_of(target), 0) | numbers
        ping_ns, to_client_ns = self._times_ns(publisher)
        return better_home(
            name,
            self._links,
            asked=_asked(name, sample.courses.values()),
            bits=bits,
            events=sample.events,
            size_kb=sample.size_bytes / sample.events / 1e3,
            ping_ns=ping_ns,
            to_client_ns=to_client_ns,
            hysteresis=self._settings.relocation_hysteresis,
        )


def _asked(name: str, courses: "Iterable[tuple[Course, int]]") -> list[Asked]:
    """The requested deliveries, by broker and deadline, the most worth first."""
    deliveries: dict[tuple[str, int], int] = defaultdict(int)
    worth: dict[tuple[str, int], float] = defaultdict(float)
    for course, numbers in courses:
        events = numbers.bit_count()
        for target, terms in course.targets.items():
            paid = [term for term in terms if term[1] > 0]
            for number, (deadline_ns, price) in enumerate(paid):
                key = (broker_of(target), deadline_ns)
                # A term may stand for several subscriptions; it does not state which, so the first has the rest.
                many = 1 if number else max(_subscriptions(course, target, name) - len(paid) + 1, 1)
                deliveries[key] += events * many
                worth[key] += events * price
    found = [Asked(*key, deliveries[key], worth[key]) for key in deliveries]
    found.sort(key=lambda each: (-each.worth, each.broker, each.deadline_ns))
    return found[:_MOST_PROMISES]


def _subscriptions(course: "Course", target: str, name: str) -> int:
    if target == name:
        return sum(len(wanted) for wanted in course.local.values())
    return len(course.names.get(target, ("",)))


def better_home(
    home: str,
    links: "LinkStateMap",
    *,
    asked: Iterable[Asked],
    bits: dict[str, int],
    events: int,
    size_kb: float,
    ping_ns: int,
    to_client_ns: int,
    hysteresis: float,
) -> str:
    """The broker from which most of the requested worth would be on time; home itself, if no other gains enough.

    `bits` has by broker which of the `events` were for receivers there.
    """
    import numpy as np

    names = sorted(links.links())
    number = {name: place for place, name in enumerate(names)}
    within = [each for each in asked if each.broker in number]
    if home not in number or not within:
        return home
    overlay = _overlay(links, names, number)
    most = max(each.worth for each in within)
    worth = np.array([each.worth / most for each in within])  # prices may be as large as floats
    many = sum(each.deliveries for each in within)
    deliveries = np.zeros(len(names), np.int64)
    for each in within:
        deliveries[number[each.broker]] += each.deliveries
    words = np.zeros((len(names), placement.bit_words(events)), np.uint64)
    for broker, numbers in bits.items():
        if broker in number:
            words[number[broker]] = np.frombuffer(numbers.to_bytes(words.shape[1] * 8, "little"), "<u8")
    traced = placement.Traced(
        name="",
        rate_per_s=1.0,
        tree=_tree(links, overlay, number, home),
        bits=words,
        deliveries=deliveries,
        traced=events,
        wanted=placement.Wanted(
            broker=np.array([number[each.broker] for each in within]),
            deadline_s=np.array([each.deadline_ns for each in within]) / 1e9,
            deliveries=worth * (many / worth.sum()),
        ),
        ping_ns=ping_ns,
    )
    chosen = placement.choose_on_time(
        traced,
        overlay,
        placement.times_of_links(overlay, size_kb=size_kb, longest_ns=wire.LONGEST_NS, to_client_ns=to_client_ns),
        hysteresis=hysteresis,
        tree_at=lambda broker: _tree(links, overlay, number, names[broker]),
    )
    return names[chosen]


def warm_up(map_kind: "type[LinkStateMap]") -> None:
    """Make one decision about nobody, so that everything is loaded and compiled for the first real one."""
    links = map_kind("a", timeout_ns=1, max_origins=2)
    for one, other in ("ab", "ba"):
        links.learn(wire.LinkState(one, 1, 1, 0, {other: (1e-3, 1e-9)}, {other: 1_000_000}), 0)
    asked = [Asked("b", 1_000_000, 100, 1.0)]
    target = better_home(
        "a", links, asked=asked, bits={"b": 1}, events=1, size_kb=1.0, ping_ns=0, to_client_ns=0, hysteresis=0.0
    )
    assert target == "b"


def _overlay(links: "LinkStateMap", names: list[str], number: dict[str, int]) -> "Overlay":
    from tidings.routing import overlay_of_links  # compiled: takes long to load

    pairs = [(one, other) for one, others in links.links().items() for other in others if other in number]
    figures = [_figures(links, *pair) for pair in pairs]
    return overlay_of_links(
        names,
        [(number[one], number[other], mean) for (one, other), (mean, _, _) in zip(pairs, figures, strict=True)],
        slowness_variance_s2_per_kb2=[variance for _, variance, _ in figures],
        propagation_mean_s=[least_ns / 1e9 for _, _, least_ns in figures],
    )


def _figures(links: "LinkStateMap", one: str, other: str) -> tuple[float, float, int]:
    """Mean and variance of a link's slowness, and the least time. A link that carried nothing has the figures of its
    other direction: nobody has measured that it costs nothing."""
    mean, variance, least_ns = links.figures(one, other)
    if mean == 0.0:
        mean, variance, _ = links.figures(other, one)
    return mean, variance, least_ns


def _tree(links: "LinkStateMap", overlay: "Overlay", number: dict[str, int], root: str) -> "Tree":
    """The tree that the events of a publisher at this broker follow."""
    import numpy as np

    from tidings.routing import NO_BROKER, tree_of_parents

    parents = np.full(len(number), NO_BROKER, np.int32)
    for broker, parent in links.tree(root).items():
        if broker != parent and broker in number:
            parents[number[broker]] = number[parent]
    return tree_of_parents(overlay, number[root], parents)
