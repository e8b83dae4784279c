"""Where a publisher could be: all candidates evaluated by rerooting, against the printed algorithms one by one.

Balanced binary trees as in paper E, a publisher at the root, subscribers everywhere, a session of 100 events. The
printed algorithms run twice: compiled as rerooting is (a walk over the tree for each candidate), and in plain Python as
the tests use them. Where there are many candidates they evaluate a sample, and the time for all is taken in proportion;
what is evaluated is compared.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tidings.compiled import compiled
from tidings.placement import Candidates, PrintedEvaluation, TraceSession, bit_words, evaluate
from tidings.routing import overlay_of_links, shortest_path_tree

DEPTHS = (5, 9, 13)
EVENTS = 100
COMPILED_SAMPLE = 1023
PLAIN_SAMPLE = 20
REPEATS = 7
SEED = 9


def make_session(depth: int) -> TraceSession:
    generator = np.random.default_rng(SEED)
    brokers = 2 ** (depth + 1) - 1
    links = [((child - 1) // 2, child, 1.0) for child in range(1, brokers)]
    overlay = overlay_of_links(brokers, links, both_ways=True)
    delivered = np.zeros((brokers, bit_words(EVENTS) * 64), bool)
    delivered[:, :EVENTS] = generator.random((brokers, EVENTS)) < generator.choice([0.1, 0.5, 1.0], size=(brokers, 1))
    return TraceSession(
        overlay=overlay,
        tree=shortest_path_tree(overlay, 0),
        events=EVENTS,
        bits=np.packbits(delivered, axis=1, bitorder="little").view("<u8").astype(np.uint64),
        deliveries=delivered.sum(axis=1),
        to_client_ns=generator.integers(0, 10**6, size=brokers),
        onward_ns=generator.integers(10**6, 10**8, size=overlay.link_count),
        ping_ns=generator.integers(10**6, 10**8, size=brokers),
    )


@compiled
def printed_figures(
    candidate: int,
    offsets: NDArray[np.int32],
    links: NDArray[np.int32],
    target: NDArray[np.int32],
    bits: NDArray[np.uint64],
    deliveries: NDArray[np.int64],
    to_client_ns: NDArray[np.int64],
    onward_ns: NDArray[np.int64],
    ping_ns: int,
) -> tuple[int, int]:
    """Algorithms 1 to 3 for one candidate: a walk away from it for the delays, and back for the unions."""
    brokers, words = bits.shape
    order = np.empty(brokers, np.int64)
    previous = np.full(brokers, -1, np.int64)
    so_far = np.zeros(brokers, np.int64)
    order[0], so_far[candidate], known = candidate, ping_ns, 1
    total = 0
    for place in range(brokers):
        broker = order[place]
        total += deliveries[broker] * (so_far[broker] + to_client_ns[broker])
        for slot in range(offsets[broker], offsets[broker + 1]):
            neighbour = target[links[slot]]
            if neighbour != previous[broker]:
                previous[neighbour] = broker
                so_far[neighbour] = so_far[broker] + onward_ns[links[slot]]
                order[known] = neighbour
                known += 1
    joined = bits.copy()
    messages = 0
    for place in range(brokers - 1, -1, -1):
        broker = order[place]
        for word in range(words):
            rest = joined[broker, word]
            while rest != np.uint64(0):
                rest &= rest - np.uint64(1)
                messages += 1
            if place > 0:
                joined[previous[broker], word] |= joined[broker, word]
    return total, messages


def printed_compiled(session: TraceSession, broker: int) -> tuple[int, int]:
    overlay = session.overlay
    return printed_figures(
        broker,
        overlay.out_offsets,
        overlay.out_links,
        overlay.target,
        session.bits,
        session.deliveries,
        session.to_client_ns,
        session.onward_ns,
        int(session.ping_ns[broker]),
    )


def printed_plain(printed: PrintedEvaluation, broker: int) -> tuple[int, int]:
    return printed.total_delay_ns(broker), printed.total_messages(broker)


def timed(figures: Callable[[int], tuple[int, int]], sample: list[int], found: Candidates) -> float:
    """Seconds for each candidate; every figure must be what rerooting gives."""
    began = time.perf_counter()
    values = [figures(broker) for broker in sample]
    took = time.perf_counter() - began
    for broker, value in zip(sample, values, strict=True):
        place = found.at(broker)
        assert (int(found.total_delay_ns[place]), int(found.messages[place])) == value
    return took / len(sample)


def main() -> None:
    print(f"placement: all candidates of one publisher, a session of {EVENTS} events")
    print(f"{'brokers':>8} {'rerooting ms':>13} {'printed ms':>12} {'ratio':>8} {'in Python ms':>14} {'ratio':>10}")
    warm = make_session(2)
    evaluate(warm)
    printed_compiled(warm, 0)
    for depth in DEPTHS:
        session = make_session(depth)
        brokers = len(session.tree.order)
        took = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            found = evaluate(session)
            took.append(time.perf_counter() - began)
        quick_s = min(took)
        sample = np.random.default_rng(SEED).permutation(brokers).tolist()
        compiled_s = brokers * timed(partial(printed_compiled, session), sample[:COMPILED_SAMPLE], found)
        printed = partial(printed_plain, PrintedEvaluation(session))
        plain_s = brokers * timed(printed, sample[:PLAIN_SAMPLE], found)
        print(
            f"{brokers:>8} {quick_s * 1e3:>13.3f} {compiled_s * 1e3:>12.1f} {compiled_s / quick_s:>8.0f} "
            f"{plain_s * 1e3:>14.0f} {plain_s / quick_s:>10.0f}"
        )


if __name__ == "__main__":
    main()
