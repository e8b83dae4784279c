"""Paper E, section 5, as a network: a balanced binary tree of brokers, stock quotes, readers of three kinds.

Readers of one stock are of three kinds: high-rated readers want every quote, medium-rated half of them (by volume),
low-rated a tenth (by the day's range). `random`: 70 % low, 25 % medium, 5 % high, on X brokers drawn for each
publisher. `clustered`: 5 % high, all at one broker, and 95 % low on X - 1 others. Filters of one kind are the same for
all, as in the paper: so low-rated readers want the same tenth.

Our reading of what the paper leaves open (wide area): 63 brokers, 20 publishers, 80 readers each, a quote a second;
matching log-normal with a median of 10 ms; one-way links with a mean of 40 ms, of which a fifth is jitter. Publishers
start at random brokers. From a client to any broker it takes 75 ms on average: clients sit anywhere, overlay links
join neighbours. (That figure is chosen so that the delay falls by about two
thirds where all readers share a broker, as the paper's does; nothing else depends on it.)

Quotes are to arrive within 520 ms, which a little more than half of them do at first.

Quotes are real ones (`sp500_daily` in `TIDINGS_DATA`, or in ../shared/data) if available; otherwise a
geometric random walk with volumes and ranges of the same kind.
"""

import csv
import gzip
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidings.matching import MatchingIndex
from tidings.routing import Overlay, Tree, overlay_of_links, shortest_path_tree

__all__ = ["Kind", "Place", "Publisher", "Quotes", "Readers", "make_place", "make_publishers", "read_quotes"]

Kind = Literal["clustered", "random"]

MATCHING_MEDIAN_NS: Final = 10e6
MATCHING_SIGMA: Final = 0.3
LINK_MEAN_NS: Final = 40e6
LINK_SIGMA: Final = 0.4
JITTER: Final = 0.2
ACCESS_MEAN_NS: Final = 75e6
ACCESS_SIGMA: Final = 0.4
DEADLINE_NS: Final = 520e6
SHARES: Final = {
    "clustered": {"low": 0.95, "medium": 0.0, "high": 0.05},
    "random": {"low": 0.70, "medium": 0.25, "high": 0.05},
}
FILTERS: Final = {
    "low": "class = 'STOCK' AND symbol = '{symbol}' AND highLowDiff > {range!r}",
    "medium": "class = 'STOCK' AND symbol = '{symbol}' AND volume > {volume!r}",
    "high": "class = 'STOCK' AND symbol = '{symbol}'",
}
LOW_SHARE: Final = 0.1
MEDIUM_SHARE: Final = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Quotes:
    """One stock: a quote for each event, as attributes."""

    symbol: str
    events: list[dict[str, object]]

    def matrix(self, kinds: list[str]) -> NDArray[np.bool_]:
        """Which of the events a reader of each kind gets: its filter, in the matching index."""
        ranges = np.array([event["highLowDiff"] for event in self.events], float)
        volumes = np.array([event["volume"] for event in self.events], float)
        index = MatchingIndex()
        for number, kind in enumerate(kinds):
            bounds = {
                "symbol": self.symbol,
                "range": float(np.quantile(ranges, 1 - LOW_SHARE)),
                "volume": float(np.quantile(volumes, 1 - MEDIUM_SHARE)),
            }
            index.add(number, FILTERS[kind].format(**bounds))
        offsets, readers = index.match_batch(pa.RecordBatch.from_pylist(self.events))
        wants = np.zeros((len(kinds), len(self.events)), bool)
        wants[readers, np.repeat(np.arange(len(self.events)), np.diff(offsets))] = True
        return wants


def read_quotes(stocks: int, events: int, generator: np.random.Generator) -> list[Quotes]:
    """Real quotes, each day of a stock in its turn by chance (again and again if there are fewer), or made ones.

    By chance, because wide days come in clusters: a run of ten minutes would see two different markets.
    """
    path = Path(os.environ.get("TIDINGS_DATA", "../shared/data")) / "sp500_daily" / "sp500_daily_80.csv.gz"
    if not path.exists():
        return [_walk(f"S{number}", events, generator) for number in range(stocks)]
    rows = _real_quotes(path)
    found = []
    for symbol in sorted(rows)[:stocks]:
        days = generator.permutation(len(rows[symbol])).tolist()
        found.append(Quotes(symbol=symbol, events=[rows[symbol][days[number % len(days)]] for number in range(events)]))
    return found


@cache
def _real_quotes(path: Path) -> dict[str, list[dict[str, object]]]:
    rows: dict[str, list[dict[str, object]]] = {}
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["symbol"], []).append(_quote(row["symbol"], *_prices(row), int(row["volume"])))
    return rows


def _prices(row: dict[str, str]) -> tuple[float, float, float, float]:
    return float(row["open"]), float(row["high"]), float(row["low"]), float(row["close"])


def _quote(symbol: str, opened: float, high: float, low: float, close: float, volume: int) -> dict[str, object]:
    return {
        "class": "STOCK",
        "symbol": symbol,
        "open": opened,
        "high": high,
        "low": low,
        "close": close,
        "volume": volume,
        "openCloseDiff": abs(close - opened) / opened,
        "highLowDiff": (high - low) / low,
    }


def _walk(symbol: str, events: int, generator: np.random.Generator) -> Quotes:
    close = 40 * np.exp(np.cumsum(generator.normal(0, 0.015, size=events)))
    opened = close * np.exp(generator.normal(0, 0.01, size=events))
    high = np.maximum(opened, close) * (1 + generator.exponential(0.006, size=events))
    low = np.minimum(opened, close) * (1 - np.minimum(0.5, generator.exponential(0.006, size=events)))
    volume = generator.lognormal(15, 0.5, size=events).astype(int)
    days = zip(opened.tolist(), high.tolist(), low.tolist(), close.tolist(), volume.tolist(), strict=True)
    return Quotes(symbol=symbol, events=[_quote(symbol, *day) for day in days])


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """The overlay, seen from every broker, and how long its parts take."""

    overlay: Overlay
    trees: tuple[Tree, ...]
    link_ns: NDArray[np.float64]

    @property
    def brokers(self) -> int:
        return self.overlay.broker_count


def make_place(depth: int, generator: np.random.Generator) -> Place:
    brokers = 2 ** (depth + 1) - 1
    joined = [((child - 1) // 2, child, 1.0) for child in range(1, brokers)]
    overlay = overlay_of_links(brokers, joined, both_ways=True)
    each = _log_normal(LINK_MEAN_NS, LINK_SIGMA, (len(joined),), generator)
    return Place(
        overlay=overlay,
        trees=tuple(shortest_path_tree(overlay, home, weight="hops") for home in range(brokers)),
        link_ns=np.repeat(each, 2),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Readers:
    """The readers of one publisher: where they are, which of its events they want, how far each broker is from each."""

    broker: NDArray[np.int64]
    wants: NDArray[np.bool_]
    access_ns: NDArray[np.float64]

    @property
    def own_access_ns(self) -> NDArray[np.float64]:
        """From each reader's broker to the reader."""
        return self.access_ns[np.arange(len(self.broker)), self.broker]


@dataclass(frozen=True, kw_only=True, eq=False)
class Publisher:
    home: int
    access_ns: NDArray[np.float64]
    readers: Readers


def make_publishers(
    place: Place,
    kind: Kind,
    spread: int,
    *,
    publishers: int,
    readers: int,
    events: int,
    generator: np.random.Generator,
) -> list[Publisher]:
    """Publishers at random brokers, with their readers on `spread` brokers each."""
    made = []
    for quotes in read_quotes(publishers, events, generator):
        sites = generator.choice(place.brokers, size=spread, replace=False)
        counts = {name: round(share * readers) for name, share in SHARES[kind].items()}
        counts["low"] = readers - counts["medium"] - counts["high"]
        kinds = [name for name, count in counts.items() for _ in range(count)]
        made.append(
            Publisher(
                home=int(generator.integers(place.brokers)),
                access_ns=_log_normal(ACCESS_MEAN_NS, ACCESS_SIGMA, (place.brokers,), generator),
                readers=Readers(
                    broker=np.array([_site(kind, name, sites, generator) for name in kinds], np.int64),
                    wants=quotes.matrix(kinds),
                    access_ns=_log_normal(ACCESS_MEAN_NS, ACCESS_SIGMA, (readers, place.brokers), generator),
                ),
            )
        )
    return made


def _site(kind: Kind, name: str, sites: NDArray[np.int64], generator: np.random.Generator) -> int:
    """The main office is the first site; in the clustered workload it is the home of high-rated readers alone."""
    if kind == "clustered" and (name == "high" or len(sites) == 1):
        return int(sites[0])
    return int(generator.choice(sites[1:] if kind == "clustered" else sites))


def _log_normal(
    mean: float, sigma: float, shape: tuple[int, ...], generator: np.random.Generator
) -> NDArray[np.float64]:
    return generator.lognormal(np.log(mean) - sigma**2 / 2, sigma, size=shape)
