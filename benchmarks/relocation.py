"""What it costs a live broker to find its publishers' places.

First the events that come in from a client, as in `benchmarks.protocol` (role `home`): a broker that looks at every
one of them, against one that does not relocate, in the same run. `on-time` notes each event's course; `pop` and `grape`
trace events here that nobody answers for, so they show what tracing costs the home alone.

Then one decision by `on-time`: a mesh of brokers with half as many links more than a tree, as many promises as are
looked at. A broker decides no more often than the pause says (it grows with the brokers), so `share` is the most
of a processor that decisions take. The peer is plain Python: every broker as the publisher's home, one by one, by its
own tree; where there are many, a sample of them, in proportion.
Seconds are those of the processor.
"""

import random
import time
from typing import Final

from benchmarks.protocol import machine_rate
from tidings.protocol import wire
from tidings.protocol.broker._link_state import LinkStateMap
from tidings.protocol.relocation import _on_time
from tidings.protocol.relocation._on_time import Asked, better_home

SUBSCRIPTIONS: Final = (100, 1_000, 10_000)
BROKERS: Final = (15, 127, 1_023)
PROMISES: Final = 256
SAMPLE: Final = 30
REPEATS: Final = 3
MS: Final = 10**6


def main() -> None:
    print("relocation: events per second through their home broker, by what it looks for")
    print(f"{'subscriptions':>13}{'off':>10}{'on-time':>10}{'pop':>10}{'grape':>10}{'on-time/off':>13}")
    always = {"relocation_stay_ns": 0, "relocation_events": wire.MAX_TRACED, "relocation_per_window": wire.MAX_TRACED}
    for count in SUBSCRIPTIONS:
        rates = {
            relocation: max(machine_rate("home", count, relocation=relocation, **always) for _ in range(REPEATS))
            for relocation in ("off", "on-time", "pop", "grape")
        }
        columns = "".join(f"{rate:>10,.0f}" for rate in rates.values())
        print(f"{count:>13,}{columns}{rates['on-time'] / rates['off']:>13.2f}")
    print(f"relocation: one decision by on-time, {PROMISES} promises")
    print(f"{'brokers':>8}{'decision':>12}{'pause':>10}{'share':>8}{'one by one':>13}{'one by one/ours':>17}")
    _on_time.warm_up(LinkStateMap)
    for brokers in BROKERS:
        links, asked = _network(brokers)
        ours_s = min(_seconds(links, asked) for _ in range(REPEATS))
        pause_s = (_on_time._APART_NS + brokers * _on_time._APART_PER_BROKER_NS) * 1e-9
        plain_s = _one_by_one_s(links, asked)
        print(
            f"{brokers:>8,}{ours_s * 1e3:>9.1f} ms{pause_s * 1e3:>7.0f} ms{ours_s / pause_s:>8.1%}"
            f"{plain_s * 1e3:>10.1f} ms{plain_s / ours_s:>17.1f}"
        )


def _network(brokers: int) -> tuple[LinkStateMap, list[Asked]]:
    dice = random.Random(brokers)
    pairs = {((child - 1) // 2, child) for child in range(1, brokers)}
    while len(pairs) < brokers - 1 + brokers // 2:
        one, other = sorted(dice.sample(range(brokers), 2))
        pairs.add((one, other))
    beside: dict[int, dict[str, int]] = {number: {} for number in range(brokers)}
    for one, other in sorted(pairs):
        beside[one][_name(other)] = beside[other][_name(one)] = dice.randint(1, 40) * MS
    links = LinkStateMap(_name(0), timeout_ns=1, max_origins=brokers)
    for number, least_ns in beside.items():
        links.learn(wire.LinkState(_name(number), 1, 1, 0, dict.fromkeys(least_ns, (0.01, 1e-4)), least_ns), 0)
    asked = [Asked(_name(dice.randrange(brokers)), dice.randint(1, 200) * MS, 100, 1.0) for _ in range(PROMISES)]
    return links, asked


def _name(number: int) -> str:
    return f"b{number:04}"


def _seconds(links: LinkStateMap, asked: list[Asked]) -> float:
    began = time.process_time()
    better_home(
        _name(0),
        links,
        asked=asked,
        bits={each.broker: (1 << 100) - 1 for each in asked},
        events=100,
        size_kb=0.5,
        ping_ns=0,
        to_client_ns=0,
        hysteresis=0.02,
    )
    return time.process_time() - began


def _one_by_one_s(links: LinkStateMap, asked: list[Asked]) -> float:
    """What is on time from each broker, along its own tree, in plain Python."""
    homes = sorted(links.links())[:SAMPLE]
    began = time.process_time()
    for home in homes:
        tree = links.tree(home)
        for each in asked:
            took_ns, broker = 0, each.broker
            while broker != home:
                took_ns += links.figures(tree[broker], broker)[2]
                broker = tree[broker]
    return (time.process_time() - began) * len(links) / len(homes)


if __name__ == "__main__":
    main()
