"""A small network with readers far from their publishers, simulated once, and its trace read without Spark."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tidings.model import Scenario
from tidings.model.scenario import Network
from tidings.placement import Service, Spread, TraceSession, Wanted
from tidings.routing import Overlay, shortest_path_tree
from tidings.simulation import simulate

SCENARIO = """
duration = "70 s"
warmup = "5 s"
seed = 5
topology = { kind = "balanced-tree", branching = 2, depth = 3 }
[links]
propagation = { law = "shifted-gamma", shift = "10 ms", shape = 1.0, scale = "4 ms" }
[brokers]
service = { law = "exponential", mean = "3 ms" }
[[publishers]]
name = "feed"
at = ["b8", "b11", "b13", "b1"]
count = 4
rate = "8 /s"
size = "200 B"
parameters = { topic = { range = [1, 3] } }
attributes = { topic = { parameter = "topic" }, x = { law = "uniform", low = 0, high = 10 } }
[[subscribers]]
name = "reader"
at = ["b15", "b12", "b6", "b9", "b3"]
count = 15
filter = "topic = {topic} AND x < {most}"
max_delay = [{ delay = "45 ms", price = 1 }, { delay = "90 ms", price = 1 }]
parameters = { topic = { range = [1, 3] }, most = { range = [3, 10] } }
[policies]
scheduling = "fifo"
expired = "forward"
"""
WORD = 64


class Plain:
    """The trace read row by row, and everything that a decision needs computed the long way."""

    def __init__(self, trace: Path, words: int) -> None:
        self.rows = {
            table: pq.read_table(trace / table).to_pylist() for table in ("publications", "hops", "deliveries")
        }
        self.subscriptions = {row["subscription"]: row for row in pq.read_table(trace / "subscriptions").to_pylist()}
        topology = pq.read_table(trace / "topology").to_pylist()
        names = sorted(row["source"] for row in topology if row["kind"] == "broker")
        self.number = {name: place for place, name in enumerate(names)}
        links = sorted((self.number[r["source"]], self.number[r["target"]]) for r in topology if r["kind"] == "link")
        nothing = np.zeros(len(links))
        self.overlay = Overlay(
            brokers=tuple(names),
            source=np.array([s for s, _ in links], np.int32),
            target=np.array([t for _, t in links], np.int32),
            slowness_mean_s_per_kb=nothing,
            slowness_variance_s2_per_kb2=nothing,
            propagation_mean_s=nothing,
        )
        counted = [row for row in self.rows["publications"] if row["departure_ns"] >= 5_000_000_000]
        first_ns, last_ns = (end(row["departure_ns"] for row in counted) for end in (min, max))
        self.lasted_s = (last_ns - first_ns) / 1e9
        self.events: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        for row in counted:
            self.events[row["publisher"]][row["sequence"]] = row
        self.place = {name: self._places(sorted(events), words) for name, events in self.events.items()}
        self._measure()

    @staticmethod
    def _places(sequences: list[int], words: int) -> dict[int, int]:
        """The traced sequence numbers, and the bit that each has."""
        begin = sequences[0] // WORD
        sessions = sequences[-1] // WORD - begin + 1
        kept = min(words, sessions)
        starts = [next(s for s in range(sessions) if s * kept // sessions == word) for word in range(kept)]
        found = {begin + session: word for word, session in enumerate(starts)}
        return {s: found[s // WORD] * WORD + s % WORD for s in sequences if s // WORD in found}

    def _measure(self) -> None:
        stay, wait, work, last = (defaultdict(list) for _ in range(4))
        link: dict[tuple[str, str], list[int]] = defaultdict(list)
        arrival = {}
        for hop in self.rows["hops"]:
            if hop["sequence"] not in self.place[hop["publisher"]] or hop["received_ns"] is None:
                continue
            arrival[hop["publisher"], hop["sequence"], hop["target"]] = hop["received_ns"]
            if hop["ended_ns"] is not None:
                stay[hop["target"]].append(hop["ended_ns"] - hop["received_ns"])
                wait[hop["target"]].append(hop["began_ns"] - hop["received_ns"])
                work[hop["target"]].append(hop["ended_ns"] - hop["began_ns"])
            if hop["source"] is not None:
                link[hop["source"], hop["target"]].append(hop["received_ns"] - hop["enqueued_ns"])
        for row in self.rows["deliveries"]:
            if row["sequence"] in self.place[row["publisher"]]:
                last[row["broker"]].append(
                    row["arrived_ns"] - arrival[row["publisher"], row["sequence"], row["broker"]]
                )
        names = self.overlay.brokers
        ends = [(names[s], names[t]) for s, t in zip(self.overlay.source, self.overlay.target, strict=True)]
        self.stay = _three([stay[name] for name in names])
        self.wait = _three([wait[name] for name in names])[0]
        self.link = _three([link[end] or link[end[::-1]] for end in ends])
        self.last = np.where([bool(last[name]) for name in names], _three([last[name] for name in names]), self.stay)
        service = _three([work[name] for name in names])
        self.service = Service(mean_s=service[0] / 1e9, scv=service[2] / service[0] ** 2)

    def session(self, name: str, *, with_waits: bool = True) -> TraceSession:
        place = self.place[name]
        brokers = self.overlay.broker_count
        words = max(place.values()) // WORD + 1
        bits, deliveries = np.zeros((brokers, words), np.uint64), np.zeros(brokers, np.int64)
        for row in self.rows["deliveries"]:
            if row["publisher"] == name and row["sequence"] in place:
                at, bit = self.number[row["broker"]], place[row["sequence"]]
                bits[at, bit // WORD] |= np.uint64(1) << np.uint64(bit % WORD)
                deliveries[at] += 1
        less = np.zeros(brokers) if with_waits else self.wait
        home = self.number[next(iter(self.events[name].values()))["broker"]]
        return TraceSession(
            overlay=self.overlay,
            tree=shortest_path_tree(self.overlay, home, weight="hops"),
            events=words * WORD,
            bits=bits,
            deliveries=deliveries,
            to_client_ns=np.rint(self.last[0] - less).astype(np.int64),
            onward_ns=np.rint((self.stay[0] - less)[self.overlay.source] + self.link[0]).astype(np.int64),
            ping_ns=np.zeros(brokers, np.int64),
            traced=len(place),
        )

    def rate_per_s(self, name: str) -> float:
        return float(max(self.events[name]) - min(self.events[name]) + 1) / float(self.lasted_s)

    def wanted(self, name: str) -> Wanted:
        counts: dict[tuple[int, float], int] = defaultdict(int)
        for sequence in self.place[name]:
            event = self.events[name][sequence]["attributes"]
            for row in self.subscriptions.values():
                topic, most = (int(part.split()[-1]) for part in row["filter"].split(" AND "))
                if event["topic"] == topic and event["x"] < most:
                    counts[self.number[row["broker"]], row["max_delay_ns"] / 1e9] += 1
        keys = sorted(counts)
        return Wanted(
            broker=np.array([at for at, _ in keys]),
            deadline_s=np.array([deadline for _, deadline in keys]),
            deliveries=np.array([counts[key] for key in keys], float),
        )

    def spread(self) -> Spread:
        source = self.overlay.source
        return Spread(
            onward_least_ns=np.floor(self.stay[1][source] + self.link[1]).astype(np.int64),
            onward_variance_ns2=self.stay[2][source] + self.link[2],
            to_client_variance_ns2=self.last[2],
        )


def _three(samples: list[list[int]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Mean, least value and variance; where there are no samples, the mean over the others."""
    figures = np.array([(np.mean(s), min(s), np.var(s)) if s else (np.nan,) * 3 for s in samples]).T
    filled: np.ndarray[Any, np.dtype[np.float64]] = np.where(
        np.isnan(figures), np.nanmean(figures, axis=1)[:, None], figures
    )
    return filled


@pytest.fixture(scope="session")
def network() -> Network:
    return Scenario.parse(SCENARIO).expand()


@pytest.fixture(scope="session")
def trace(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("placement")
    simulate(network, out=place)
    return place


@pytest.fixture(scope="session")
def plain(trace: Path) -> Plain:
    return Plain(trace, words=4)
