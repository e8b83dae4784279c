"""One broker process: a store, a machine, a listener, connections to neighbours; from start to drained end.

- It listens when its store has been read; the machine speaks when the epoch of its new life is durable.
- What only decisions of queues need is loaded by another thread while it serves (`_warming`): most of what a process
  has to load is that.
- Of two neighbours the one whose name sorts first opens the connection, and tries again, ever more rarely, until it
  has it.
- On SIGTERM or SIGINT it drains: takes no more events (nobody has acknowledged them, so their senders keep them),
  hands over what it has for up to `drain`, makes everything durable and leaves. What is left goes on after the next
  start.
- On SIGHUP it reads its file again, and follows it as far as a broker that runs can (`_reloading`).
- A store that cannot be written ends the process with exit code 1. One that is full does not: nothing is acknowledged
  until there is room.
"""

import asyncio
import contextlib
import gc
import os
import signal
import ssl
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidings.errors import TidingsError
from tidings.live._errors import DeniedError, StoreError, StoreFullError
from tidings.live.broker._admission import GRACE_S, Answer, Preamble, admit, read_preamble
from tidings.live.broker._warming import warming
from tidings.live.client._keeping import Directory
from tidings.live.configuration._config import Network
from tidings.live.operations._logs import Log
from tidings.live.operations._orders import answer_operator
from tidings.live.operations._reloading import Reloading
from tidings.live.operations._status import Load, snapshot
from tidings.live.security._tls import dialling_context, listening_context
from tidings.live.storage._committer import Committer
from tidings.live.storage._store import Store
from tidings.live.transport._clock import Clock
from tidings.live.transport._connection import Connection
from tidings.live.transport._dialling import dial, keep_connected
from tidings.live.transport._driver import Driver
from tidings.protocol import Broker, BrokerSettings, Effect, Heard

if TYPE_CHECKING:
    from tidings.live.operations._metrics import MetricsServer

__all__ = ["BrokerNode"]

_DRAINED: Final = frozenset((9, 10))
"""Publish and Transfer: what a draining broker does not take."""
_POLL_S: Final = 0.02
_TICK_S: Final = 0.25


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """What a store holds is all in use: looking for garbage in it takes longer than reading it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


class BrokerNode:
    """A broker that runs."""

    def __init__(self, network: Network, name: str, log: Log) -> None:
        self.network = network
        self.said = network.broker(name)
        self.name = name
        self.log = log
        self.load = Load()
        self.driver: Driver
        self.committer: Committer
        self.store: Store
        self.began_s = time.monotonic()
        self._failure: TidingsError | None = None
        self._stop = asyncio.Event()
        self._numbers = 0
        self._directory = self._known()
        self._strangers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._dials: dict[str, asyncio.Task[None]] = {}  # by neighbour that this broker goes to
        self._losses: dict[str, asyncio.Event] = {}  # of connections that this broker opened
        self.listening: ssl.SSLContext | None = None
        self._reloading = Reloading(self)

    @property
    def machine(self) -> Broker:
        """The broker as the protocol knows it."""
        assert isinstance(self.driver.machine, Broker)
        return self.driver.machine

    async def run(self) -> None:
        """Serve until a signal says stop; StoreError when the store fails."""
        self.open()
        servers: list[asyncio.Server | MetricsServer] = []
        try:
            servers.append(await self._listen())
            self._dial_all()
            self._tasks.append(asyncio.create_task(self.load.measure()))
            self._tasks.append(asyncio.create_task(self._tick()))
            self._tasks.append(asyncio.create_task(warming(self.network.settings_of(self.name), self.log)))
            if self.said.metrics is not None:
                from tidings.live.operations._metrics import serve_metrics

                servers.append(serve_metrics(self, self.said.metrics))
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.stop)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reloading.hung_up, os.isatty(0))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one may have come before (`serve`)
            self.log.info("serving", listen=str(self.said.listen), epoch=self.machine.epoch, seconds=self.up_s)
            await self._stop.wait()
        finally:
            for server in servers:
                server.close()
            await self._end()
        if self._failure is not None:
            raise self._failure

    @property
    def up_s(self) -> float:
        """How long this life has lasted."""
        return round(time.monotonic() - self.began_s, 3)

    def stop(self) -> None:
        """Drain and leave; asked a second time, leave at once."""
        if self._stop.is_set():
            self.driver.ignored = frozenset(range(128))
        self._stop.set()

    def open(self) -> None:
        """Read the store and bring the machine to life."""
        network = self.network.document.network
        self.store = Store.open(self.network.store_of(self.name), max_bytes=round(network.store_size_kb * 1000))
        with _uncollected():
            self._begin(self.network.settings_of(self.name))

    def _begin(self, settings: BrokerSettings) -> None:
        began_s = time.monotonic()
        try:
            kept, clock_ns = self.store.load()
        except StoreError:
            self.store.close()
            raise
        read_s = time.monotonic() - began_s
        machine = Broker(settings, kept)
        clock = Clock(clock_ns)
        self.driver = Driver(machine, clock, on_effect=self._on_effect, on_lost=self._on_lost)
        self.committer = Committer(
            self.store, clock, on_synced=self.driver.synced, on_full=self._on_full, on_failure=self._fail
        )
        self.driver.committer = self.committer
        if self.network.document.trace is not None:
            from tidings.live.traces._tracing import TraceWriter

            self.driver.tracer = TraceWriter(self, clock_ns)
        self.driver.start()
        self.log.info(
            "started",
            kept=len(kept),
            held=len(machine.carrier.holdings),
            read_s=round(read_s, 3),
            restored_s=round(time.monotonic() - began_s - read_s, 3),
        )

    # -- those who come ------------------------------------------------------------------------------------------

    async def _listen(self) -> asyncio.Server:
        tls = self.network.tls_of(self.name)
        self.listening = None if tls is None else listening_context(tls)
        listen = self.said.listen
        try:
            return await asyncio.get_running_loop().create_server(
                self._accept,
                listen.host,
                listen.port,
                ssl=self.listening,
                backlog=1024,
            )
        except OSError as error:
            raise TidingsError(
                f"broker {self.name!r} cannot listen at {listen}: {error.strerror or error}; is another one there?"
            ) from None

    def _accept(self) -> Connection:
        return self._connection(f"in-{self._number()}")

    def _connection(self, name: str) -> Connection:
        limits = self.network.document.limits
        return Connection(
            self,
            name=name,
            max_frame_bytes=round(limits.frame_kb * 1000),
            max_unsent_bytes=round(limits.unsent_kb * 1000),
            send_buffer_bytes=round(limits.send_buffer_kb * 1000),
        )

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def opened(self, connection: Connection) -> None:
        """A stranger: it has some seconds to say who it is."""
        most = self.network.document.limits.connections
        if len(self._strangers) + len(self.driver.connections) >= most:
            connection.abort(f"there are {most} connections, the most there may be")
            return
        loop = asyncio.get_running_loop()
        self._strangers[connection.name] = loop.call_later(GRACE_S, connection.abort, "it did not say who it is")

    def received(self, connection: Connection, frames: list[bytes]) -> None:
        """What a stranger says first."""
        timer = self._strangers.pop(connection.name, None)
        if timer is None:
            return  # it was answered, and is being closed
        timer.cancel()
        try:
            said = read_preamble(frames[0])
            guard = admit(said, connection, self.network, self.name, self.driver.clock.now_ns)
        except DeniedError as error:
            self.log.warning("denied", address=connection.address, code=error.code, why=str(error))
            self.machine.refused[error.code] += 1
            connection.send(msgspec.msgpack.encode(Answer(error.code, str(error))))
            connection.close(str(error))
            return
        if said.kind in ("status", "directory", "operator"):
            connection.send(msgspec.msgpack.encode(self._answer(said)))
            connection.close("answered")
            return
        detail = b"" if said.kind == "broker" else self._directory
        connection.send(msgspec.msgpack.encode(Answer(detail=detail)))
        self.driver.attach(connection, said.name, guard)
        self.log.info("connected", peer=said.name, kind=said.kind, connection=connection.name)
        if len(frames) > 1:
            connection.host.received(connection, frames[1:])

    def _answer(self, said: Preamble) -> Answer:
        """The answer to who asks and goes."""
        if said.kind == "operator":
            return answer_operator(self, said.detail)
        return Answer(detail=self._directory if said.kind == "directory" else msgspec.json.encode(snapshot(self)))

    def lost(self, connection: Connection, reason: str) -> None:
        """A stranger is gone."""
        timer = self._strangers.pop(connection.name, None)
        if timer is not None:
            timer.cancel()
            self.log.info("stranger gone", address=connection.address, why=reason)

    def congested(self, connection: Connection, *, is_congested: bool) -> None:
        """Strangers are told little."""

    # -- those whom this broker goes to --------------------------------------------------------------------------

    def _dial_all(self) -> None:
        """Go to the neighbours whose names sort after this one, and to nobody else."""
        dialled = {other for other in self.machine.settings.neighbours if self.name < other}
        for other in self._dials.keys() - dialled:
            self._dials.pop(other).cancel()
        for other in sorted((dialled - self._dials.keys()) & self.network.brokers.keys()):
            self._dials[other] = asyncio.create_task(self._keep_connected(other))

    async def _keep_connected(self, other: str) -> None:
        said = ""

        async def dial_once() -> asyncio.Event | None:
            nonlocal said
            loss = await self._dial(other)
            said = ""
            return loss

        def failed(error: TidingsError) -> bool:
            nonlocal said
            if str(error) != said:  # once, however often it is tried
                said = str(error)
                self.log.warning("neighbour away", peer=other, why=said)
            return True

        await keep_connected(dial_once, what=f"neighbour {other!r}", failed=failed)

    async def _dial(self, other: str) -> asyncio.Event | None:
        """A connection to a neighbour: what tells when it is lost, None if it is already."""
        limits = self.network.document.limits
        tls = self.network.tls_of(self.name)  # certificates may have been renewed
        name = f"out-{self._number()}"
        await dial(
            self.network.broker(other).reached_at,
            Preamble("broker", self.name, self.network.broker_token),
            name=name,
            max_frame_bytes=round(limits.frame_kb * 1000),
            max_unsent_bytes=round(limits.unsent_kb * 1000),
            send_buffer_bytes=round(limits.send_buffer_kb * 1000),
            ready=lambda connection, _: self.driver.attach(connection, other),
            tls=None if tls is None else dialling_context(tls),
            server_name=other,
        )
        self.log.info("connected", peer=other, kind="broker", connection=name)
        if name not in self.driver.connections:
            return None
        loss = self._losses[name] = asyncio.Event()
        return loss

    # -- another file --------------------------------------------------------------------------------------------

    def adopt(self, network: Network) -> None:
        """The network is this one from now on; `rewire` has to follow."""
        self.network = network
        self._directory = self._known()

    def rewire(self, neighbours: frozenset[str]) -> None:
        """These are the neighbours from now on."""
        self.driver.call(self.machine.rewire, neighbours, self.network.links)
        self._dial_all()

    def _known(self) -> bytes:
        """What clients are told of the network."""
        addresses = {name: broker.reached_at for name, broker in self.network.brokers.items()}
        return msgspec.msgpack.encode(Directory(self.name, addresses))

    # -- what happens --------------------------------------------------------------------------------------------

    def _on_effect(self, effect: Effect) -> None:
        if not isinstance(effect, Heard):
            raise AssertionError(f"a broker delivers nothing itself: {effect}")
        if effect.is_up:
            self.log.info("neighbour heard", peer=effect.neighbour)
        else:
            self.log.warning("neighbour lost", peer=effect.neighbour)

    def _on_lost(self, connection: Connection, reason: str) -> None:
        loss = self._losses.pop(connection.name, None)
        if loss is not None:
            loss.set()
        self.log.info(
            "disconnected",
            peer=connection.peer,
            connection=connection.name,
            address=connection.address,
            why=reason,
        )

    def _on_full(self, error: StoreFullError | None) -> None:
        if error is None:
            self.log.info("store has room again")
        else:
            self.log.error("store full", why=str(error), meanwhile="no event is acknowledged")

    def _fail(self, error: StoreError) -> None:
        self.log.error("store failed", why=str(error))
        self._failure = error
        self.driver.ignored = frozenset(range(128))  # nothing that comes now can be promised
        self._stop.set()

    async def _tick(self) -> None:
        while self.driver.tracer is not None:
            self.driver.tracer.tick()
            await asyncio.sleep(_TICK_S)

    # -- the end -------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        held = len(self.machine.carrier.holdings)
        self.log.info("draining", held=held)
        self._reloading.close()
        for task in (*self._tasks, *self._dials.values()):
            task.cancel()
        if self._failure is None:
            self.driver.ignored |= _DRAINED
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.network.document.network.drain_s):
                    while self._is_handing_over() and len(self.driver.ignored) < 128:
                        await asyncio.sleep(_POLL_S)
        self.driver.stop()
        await self.committer.close()
        for connection in list(self.driver.connections.values()):
            connection.close("the broker stops")
        await asyncio.sleep(0)
        if self.driver.tracer is not None:
            self.driver.tracer.close()
        self.store.close()
        self.log.info("stopped", held=len(self.machine.carrier.holdings), seconds=self.up_s)

    def _is_handing_over(self) -> bool:
        """Whether anything is on its way to somebody who is there."""
        machine = self.machine
        peers: list[Any] = [*machine.neighbours.values(), *machine.clients.values()]
        return any(peer.is_up and (peer.outbox.queued or peer.outbox.under_way) for peer in peers)
