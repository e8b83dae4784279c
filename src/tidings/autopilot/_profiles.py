"""Where an autopilot's picture of the network comes from: the one place to change when profiles come from elsewhere.

`Profiles.network(since_ns)` is the network as it was measured since then, with the policies in force, computed with
the engine `arrow`, in this process. `WindowProfiles` asks the brokers what they remember, as `tidings profile` does.
`TraceProfiles` reads what brokers have traced (`[trace]` of the network file): the files that were written since then,
so old traces cost nothing. Rows of the last `roll_age` are not written yet.

Publishers with fewer than two events since then have no rate, and are left out. Of a link that carried nothing since
then, only its round trip is known, from the status: it is taken to be as long as that, and as slow as its opposite
direction.
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import InputError, TidingsError
from tidings.live import Network as Live
from tidings.live import read_network
from tidings.live.operations import ask_windows
from tidings.live.traces import merged, write_merged
from tidings.model.distributions import Deterministic
from tidings.model.policies import StrategyName
from tidings.model.scenario import Network
from tidings.pipeline import PipelineOptions
from tidings.pipeline.arrow import run_in_process
from tidings.prediction import from_profiles, network_of, read_profiles

__all__ = ["Profiles", "RoundTrips", "TraceProfiles", "WindowProfiles", "source_of"]

_SMALL = ("subscriptions", "topology")
_LARGE = ("publications", "hops", "deliveries")

RoundTrips = Mapping[tuple[str, str], float]
"""By broker and neighbour."""


class Profiles(Protocol):
    """A source of measured networks."""

    def network(self, since_ns: int, *, strategy: StrategyName, round_trips_s: RoundTrips) -> Network:
        """The network as it was measured since then; TidingsError if that is not possible."""
        ...


def source_of(live: Live, directories: Sequence[Path] = ()) -> Profiles:
    """The traces in these directories, else those that the network file names, else what brokers remember."""
    trace = live.document.trace
    if not directories and trace is not None and trace.directory is not None:
        directories = (live.path.parent / trace.directory,)
    if directories:
        return TraceProfiles(directories)
    if live.document.profiles.record:
        return WindowProfiles(live.path)
    raise InputError(
        f"{live.path}: has record = false under [profiles] and no `directory` under [trace], so there is nothing to "
        "compute profiles from; remove record = false and restart the brokers, or name directories with --traces"
    )


class WindowProfiles:
    """From what the brokers of a network file remember."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def network(self, since_ns: int, *, strategy: StrategyName, round_trips_s: RoundTrips) -> Network:
        """The network as it was measured since then; TidingsError if that is not possible. Not for an event loop."""
        live = read_network(self._path)  # brokers may have been added
        windows, silent = asyncio.run(ask_windows(live))
        if silent:
            raise TidingsError("; ".join(f"broker {name} is missing: {why}" for name, why in silent.items()))
        rows = merged(windows, live.links, last_ns=max(time.time_ns() - since_ns, 1))
        if not rows.events:
            raise TidingsError("the brokers remember no event since then that is not under way")
        with tempfile.TemporaryDirectory(prefix="tidings-autopilot-") as name:
            folder = Path(name)
            write_merged(rows, folder / "window")
            run_in_process([folder / "window"], folder / "run", PipelineOptions(max_bad=1.0, from_scratch=True))
            tables = read_profiles(folder / "run")
        return _network(tables, "the brokers remember", strategy, round_trips_s)


class TraceProfiles:
    """From the directories that brokers trace to."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories

    def network(self, since_ns: int, *, strategy: StrategyName, round_trips_s: RoundTrips) -> Network:
        """The network as it was measured since then; TidingsError if that is not possible."""
        with tempfile.TemporaryDirectory(prefix="tidings-autopilot-") as name:
            folder = Path(name)
            traces = [self._recent(each, folder / f"trace-{n}", since_ns) for n, each in enumerate(self._directories)]
            options = PipelineOptions(warmup_ns=since_ns, max_bad=1.0, from_scratch=True)
            run_in_process(traces, folder / "run", options)
            tables = read_profiles(folder / "run")
        where = f"the traces in {', '.join(map(str, self._directories))}, written after roll_age, have"
        return _network(tables, where, strategy, round_trips_s)

    def _recent(self, directory: Path, folder: Path, since_ns: int) -> Path:
        """The files written since then, and the small tables, linked into a folder."""
        if not directory.is_dir():
            raise InputError(f"{directory}: is no directory of traces; brokers write it if [trace] names it")
        for table in (*_SMALL, *_LARGE):
            (folder / table).mkdir(parents=True)
            for place in (directory / table).rglob("*.parquet"):
                if place.name.startswith(("_", ".")):
                    continue
                if table in _SMALL or place.stat().st_mtime_ns >= since_ns:
                    target = folder / table / "-".join(place.relative_to(directory / table).parts)
                    target.symlink_to(place.resolve())
        return folder


def _network(tables: dict[str, pa.Table], where: str, strategy: StrategyName, round_trips_s: RoundTrips) -> Network:
    tables.pop("components", None)  # failures of the past: the network as it is now
    publishers, content = tables["publishers"], tables["content"]
    tables["publishers"] = publishers.filter(pc.greater(pc.fill_null(publishers["rate_per_s"], 0.0), 0.0))
    if not len(tables["publishers"]):
        raise TidingsError(f"{where} no publisher with two events since then")
    known = tables["publishers"]["publisher"].combine_chunks()
    tables["content"] = content.filter(pc.is_in(content["publisher"], value_set=known))
    return _with_all_links(network_of(from_profiles(tables), strategy=strategy), round_trips_s)


def _with_all_links(network: Network, round_trips_s: RoundTrips) -> Network:
    """The network with what is known of links that carried nothing."""
    links = {(link.source, link.target): link for link in network.topology.links}
    found = []
    for ends, link in links.items():
        other, round_trip_s = links.get((link.target, link.source)), round_trips_s.get(ends)
        if link.slowness is None and link.propagation.mean() == 0.0:
            slowness = None if other is None else other.slowness
            length_s = 0.0 if round_trip_s is None else 0.5 * round_trip_s
            way = Deterministic(value=length_s) if length_s or other is None else other.propagation
            found.append(msgspec.structs.replace(link, propagation=way, slowness=slowness))
        else:
            found.append(link)
    topology = msgspec.structs.replace(network.topology, links=tuple(found))
    return msgspec.structs.replace(network, topology=topology)
