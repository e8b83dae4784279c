"""The stage of a rehearsal: broker processes, doors for links, and clients, on this machine and in scaled time.

One second of the scenario takes 1 / `scale` seconds here. Delays, deadlines and intervals shrink by that, capacities
grow. What the protocol does by the clock of its own (dialling again, group commits) does not, and neither does what the
machine adds.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tidings.errors import TidingsError
from tidings.live import Delivery, Tidings, connect, read_network
from tidings.live.operations import ask_network
from tidings.model.scenario import Access
from tidings.model.scenario import Network as Scene
from tidings.model.topology import Link
from tidings.rehearsal._brokers import BrokerProcesses, network_text
from tidings.rehearsal._ports import free_ports
from tidings.rehearsal._shaped_link import FREE, Door, Shape
from tidings.storm import access_links, drawing

__all__ = ["Shapes", "Stage", "scaled_shapes"]

START_S: Final = 60.0
"""How long brokers and clients may take to find each other."""
_POLL_S: Final = 0.05
_STILL_S: Final = 3.0
"""When brokers have heard of nothing new for so long, they know all: equal subscriptions count once."""
_REACH_S: Final = 0.005
_REFRESH_LEAST_S: Final = 1.0
_DAY_S: Final = 86_400.0

Shapes = Callable[[str, str], Shape]
"""How bytes get from one host to another: brokers and clients by name."""


def scaled_shapes(scene: Scene, scale: float) -> Shapes:
    """Links as the scenario describes them; a broker's processing time is added to the link into it."""
    links: dict[tuple[str, str], Link | Access] = {(link.source, link.target): link for link in scene.topology.links}
    links |= access_links(scene)
    brokers = {broker.name: broker for broker in scene.topology.brokers}
    generator = np.random.default_rng([scene.seed, 8])

    def shape(source: str, target: str) -> Shape:
        link = links.get((source, target))
        into = brokers[target].processing if target in brokers else None
        if link is None and into is None:
            return FREE
        return Shape(
            drawing(link, into, generator, second=1.0 / scale), is_narrow=link is not None and link.slowness is not None
        )

    return shape


class Stage:
    """A scenario's brokers, links and clients; an asynchronous context in which all of them are up."""

    def __init__(
        self,
        scene: Scene,
        directory: Path,
        *,
        scale: float,
        shapes: Shapes,
        longest_s: float,
        is_traced: bool,
        on_delivery: Callable[[str, Delivery], None],
        late_s: float = 0.0,
    ) -> None:
        self._scene = scene
        self._directory = directory
        self._scale = scale
        self._shapes = shapes
        self._longest_s = longest_s
        self._is_traced = is_traced
        self._on_delivery = on_delivery
        self._late_s = late_s
        self._graph = {
            broker.name: frozenset(scene.topology.neighbours(broker.name)) for broker in scene.topology.brokers
        }
        self.doors: dict[tuple[str, str], Door] = {}
        """By caller and target: links, and the access of clients."""
        self.clients: dict[str, Tidings] = {}
        self.processes: BrokerProcesses
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "Stage":
        try:
            await self._set()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    def doors_of(self, broker: str) -> list[Door]:
        """Every door that leads to a broker or from it."""
        return [door for ends, door in self.doors.items() if broker in ends]

    async def reach(self, broker: str) -> None:
        """Wait until a broker listens."""
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._ports[broker])
                writer.close()
                return
            await asyncio.sleep(_REACH_S)

    # -- setting up --------------------------------------------------------------------------------------------------

    async def _set(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        ports = self._ports = dict(zip(self._graph, free_ports(len(self._graph)), strict=True))
        for one in self._graph:
            for other in self._graph[one]:
                if one < other:
                    await self._open(one, other, ports[other])
        for client, home in self._scene.homes.items():
            await self._open(client, home, ports[home])
        files = self._write(ports)
        self.processes = BrokerProcesses(files, self._directory / "brokers.log")
        self._stack.callback(self.processes.end)
        for name in self._graph:
            self.processes.start(name)
        await self._wait("brokers did not find each other", self._is_joined)
        for client, home in self._scene.homes.items():
            address = f"127.0.0.1:{self.doors[client, home].port}"
            self.clients[client] = await self._stack.enter_async_context(
                connect(
                    address, name=client, failover_s=None, may_be_moved=False, max_in_flight=1 << 30, connect_s=START_S
                )
            )
        for publisher in self._scene.publishers:
            advertised = publisher.advertisement
            await self.clients[publisher.name].advertise("TRUE" if advertised is None else str(advertised))
        for subscription in self._scene.subscriptions:
            await self._subscribe(subscription)
        await self._wait("brokers did not learn of all subscriptions", self._is_known)

    async def _open(self, one: str, other: str, port: int) -> None:
        door = self.doors[one, other] = Door(port, self._shapes(one, other), self._shapes(other, one))
        await door.open()
        self._stack.push_async_callback(door.close)

    async def _subscribe(self, subscription: Any) -> None:
        def take(delivery: Delivery) -> None:
            self._on_delivery(subscription.id, delivery)

        allowed_s = subscription.max_delay_s
        await self.clients[subscription.subscriber].subscribe(
            str(subscription.filter),
            name=subscription.id,
            max_delay_s=None if allowed_s is None else allowed_s / self._scale,
            price=subscription.price,
            late_s=self._late_s,
            order=self._scene.policies.ordering,
            callback=take,
        )

    def _write(self, ports: Mapping[str, int]) -> dict[str, Path]:
        """One file for each broker, in which its neighbours are doors; and one for people, without any."""
        sections = self._sections()
        self._plain = self._directory / "network.toml"
        self._plain.write_text(network_text(sections, ports, {}, self._graph), "utf-8")
        files = {}
        for number, name in enumerate(ports):
            doors = {other: door.port for (one, other), door in self.doors.items() if one == name}
            files[name] = self._directory / f"broker-{number + 1}.toml"
            files[name].write_text(network_text(sections, ports, doors, self._graph), "utf-8")
        return files

    def _sections(self) -> dict[str, dict[str, Any]]:
        policies, scale = self._scene.policies, self._scale
        scheduling, faults = policies.scheduling, policies.faults
        refresh_s = max(faults.refresh_s / scale, _REFRESH_LEAST_S)
        lifetime_s = max(self._longest_s / scale, 1.0)
        network: dict[str, Any] = {
            "scheme": faults.scheme,
            "strategy": scheduling.name,
            "store": "store",
            "must_advertise": False,
            "drain": "1 s",
            "silence": "10 s",  # an outage is noticed because connections break
            "refresh": f"{refresh_s!r} s",
            "timeout": f"{3.5 * refresh_s!r} s",
            "forget": f"{max(_DAY_S, 4.0 * refresh_s, lifetime_s)!r} s",
        }
        if scheduling.r is not None:
            network["r"] = scheduling.r
        sections: dict[str, dict[str, Any]] = {"network": network, "limits": {"lifetime": f"{lifetime_s!r} s"}}
        if self._is_traced:
            sections["trace"] = {"directory": "trace"}
        return sections

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _wait(self, what: str, holds: Callable[[list[dict[str, Any]]], bool]) -> None:
        network = read_network(self._plain)
        until_s = time.monotonic() + START_S
        last, since_s = -1, time.monotonic()
        while True:
            found = await ask_network(network)
            if holds(found):
                return
            known = sum(broker.get("subscriptions_elsewhere", 0) for broker in found)
            if known != last:
                last, since_s = known, time.monotonic()
            self.processes.check()
            if time.monotonic() > until_s:
                raise TidingsError(f"the rehearsal was not started: {what} within {START_S:g} s")
            if holds == self._is_known and time.monotonic() - since_s > _STILL_S:
                return
            await asyncio.sleep(_POLL_S)

    @staticmethod
    def _is_joined(found: list[dict[str, Any]]) -> bool:
        return all(
            broker["up"]
            and broker["ready"]
            and not broker["absent"]
            and all(peer["up"] for peer in broker["neighbours"].values())
            for broker in found
        )

    def _is_known(self, found: list[dict[str, Any]]) -> bool:
        total = len(self._scene.subscriptions)
        return all(
            broker["up"] and broker["subscriptions"] + broker["subscriptions_elsewhere"] >= total for broker in found
        )
