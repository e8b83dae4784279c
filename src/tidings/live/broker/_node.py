"""One broker process: a store, a machine, a listener, connections to neighbours; from start to drained end.

- It listens when its store has been read; the machine speaks when the epoch of its new life is durable.
- What only decisions of queues need is loaded by another thread while it serves (`_warming`): most of what a process
  has to load is that.
- Of two neighbours the one whose name sorts first dials the other.
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
import random
import signal
import socket
import ssl
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidings.errors import TidingsError
from tidings.live._errors import BrokenError, StoreError
from tidings.live.broker._warming import warming
from tidings.live.configuration._config import Network
from tidings.live.operations._logs import Log
from tidings.live.operations._orders import answer_operator
from tidings.live.operations._reloading import Reloading
from tidings.live.operations._status import Load, Snapshots, answer_status
from tidings.live.security._secrets import is_open
from tidings.live.security._tls import dialling_context, listening_context
from tidings.live.storage._committer import Committer
from tidings.live.storage._store import Store
from tidings.live.transport._clock import Clock
from tidings.live.transport._driver import Driver
from tidings.live.transport._listener import BACKLOG, TlsListener
from tidings.protocol import OLDEST_VERSION, VERSION, Broker, BrokerSettings, FormatError, Heard
from tidings.protocol.node import (
    Admission,
    Admitted,
    Answer,
    ConnectionLimits,
    Credentials,
    Directory,
    Node,
    NodeEffect,
    Parted,
    Preamble,
    Report,
    Unreached,
)

if TYPE_CHECKING:
    from tidings.live.operations._metrics import MetricsServer

__all__ = ["BrokerNode"]

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
        self.snapshots = Snapshots(self)
        self.driver: Driver
        self.committer: Committer
        self.store: Store
        self.began_s = time.monotonic()
        self._failure: TidingsError | None = None
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.listening: ssl.SSLContext | None = None
        self._reloading = Reloading(self)

    @property
    def machine(self) -> Broker:
        """The broker as the protocol knows it."""
        assert isinstance(self.driver.node.machine, Broker)
        return self.driver.node.machine

    @property
    def is_draining(self) -> bool:
        """Whether it takes no more events, and is about to stop."""
        return self._stop.is_set()

    async def run(self) -> None:
        """Serve until a signal says stop; StoreError when the store fails."""
        self.open()
        servers: list[asyncio.Server | TlsListener | MetricsServer] = []
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
            self.driver.node.is_deaf = True
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
            found = Node.read(self.store.load())
        except FormatError as error:
            self.store.close()
            raise StoreError(
                f"store {self.store.directory} cannot be read: {error}. Run the version that wrote it, or move the "
                "directory away to begin anew"
            ) from None
        except StoreError:
            self.store.close()
            raise
        read_s = time.monotonic() - began_s
        machine = Broker(settings, found.kept)
        clock = Clock(found.noted_ns)
        node = Node(
            machine,
            preamble=Preamble("broker", self.name),
            credentials=self._credentials(),
            limits=self._limits(),
            chance=random.random,
            admission=self._admission(),
            answer=self._answer,
            found=found,
            speaks=(OLDEST_VERSION, self.network.document.network.wire_version),
        )
        node.directory = self._known()
        self.driver = Driver(
            node,
            clock,
            on_effect=self._on_effect,
            on_bug=self._stop_broken,
            tls=self._dialling_context,
            send_buffer_bytes=round(self.network.document.limits.send_buffer_kb * 1000),
        )
        self.committer = Committer(
            self.store,
            on_committed=lambda: self.driver.tell(node.committed),
            on_refused=lambda error: self.driver.tell(node.refused, str(error)),
            on_failure=self._fail,
        )
        self.driver.committer = self.committer
        if self.network.document.trace is not None:
            from tidings.live.traces._tracing import TraceWriter

            self.driver.tracer = TraceWriter(self, found.noted_ns)
        self.driver.start()
        if any(token.token is not None for token in self.network.document.token) and is_open(self.network.path):
            remedy = f"chmod o= {self.network.path}, or give token_file instead of token"
            self.log.warning("tokens open to everybody", file=str(self.network.path), remedy=remedy)
        self.log.info(
            "started",
            kept=len(found.kept),
            held=len(machine.carrier.holdings),
            read_s=round(read_s, 3),
            restored_s=round(time.monotonic() - began_s - read_s, 3),
        )

    # -- those who come ------------------------------------------------------------------------------------------

    async def _listen(self) -> asyncio.Server | TlsListener:
        tls = self.network.tls_of(self.name)
        self.listening = None if tls is None else listening_context(tls)
        listen = self.said.listen
        try:
            if self.listening is not None:
                return await TlsListener.open(listen.host, listen.port, self._accept_tls)
            return await asyncio.get_running_loop().create_server(
                self.driver.accept, listen.host, listen.port, backlog=BACKLOG
            )
        except OSError as error:
            raise TidingsError(
                f"broker {self.name!r} cannot listen at {listen}: {error.strerror or error}; is another one there?"
            ) from None

    def _accept_tls(self, bare: socket.socket, address: str) -> None:
        assert self.listening is not None
        self.driver.accept_tls(bare, address, self.listening)

    def _limits(self) -> ConnectionLimits:
        limits = self.network.document.limits
        return ConnectionLimits(
            max_frame_bytes=round(limits.frame_kb * 1000),
            max_unread_bytes=round(limits.unsent_kb * 1000),
            max_connections=limits.connections,
            requests_share=limits.requests,
        )

    def _admission(self) -> Admission:
        """Whom this broker lets in, by the file."""
        network = self.network
        return Admission(
            name=self.name,
            brokers=frozenset(network.brokers),
            neighbours=network.links[self.name],
            broker_token=network.shared_token(),
            is_token_implied=network.is_token_implied,
            trusts_old=network.is_token_implied and network.document.network.wire_version < VERSION,
            tokens=network.tokens,
            rules=network.rules,
            budgets=network.budgets,
            budget=network.budget,
            has_certificates=network.document.tls is not None,
            client_certificates=network.document.tls is not None and network.document.tls.client_certificates,
        )

    def _credentials(self) -> Credentials:
        """What this broker proves who it is with, by the file."""
        network = self.network
        return Credentials(token=network.shared_token(), is_token_implied=network.is_token_implied)

    def _answer(self, said: Preamble) -> Answer:
        """The answer to who asks and goes."""
        if said.kind == "operator":
            return answer_operator(self, said.detail)
        return Answer(detail=answer_status(self, said.detail))

    # -- those whom this broker goes to --------------------------------------------------------------------------

    def _dialling_context(self) -> ssl.SSLContext | None:
        tls = self.network.tls_of(self.name)  # certificates may have been renewed
        return None if tls is None else dialling_context(tls)

    def _dial_all(self) -> None:
        """Dial the neighbours whose names sort after this one, and nobody else."""
        dialled = {other for other in self.machine.settings.neighbours if self.name < other}
        targets = self.driver.node.dials.targets
        for other in sorted(targets.keys() - dialled):
            self.driver.tell(self.driver.node.unwant, other)
        for other in sorted((dialled - targets.keys()) & self.network.brokers.keys()):
            address = str(self.network.broker(other).reached_at)
            self.driver.tell(self.driver.node.want, other, address, other)

    # -- another file --------------------------------------------------------------------------------------------

    def adopt(self, network: Network) -> None:
        """The network is this one from now on; `rewire` has to follow."""
        self.network = network
        self.driver.tell(self.driver.node.readmit, self._admission(), self._credentials())
        self.driver.node.directory = self._known()

    def rewire(self, neighbours: frozenset[str]) -> None:
        """These are the neighbours from now on."""
        self.driver.call(self.machine.rewire, neighbours, self.network.links)
        self._dial_all()

    def _known(self) -> Directory:
        """What clients are told of the network."""
        addresses = {name: str(broker.reached_at) for name, broker in self.network.brokers.items()}
        return Directory(self.name, addresses)

    # -- what happens --------------------------------------------------------------------------------------------

    def _on_effect(self, effect: NodeEffect) -> None:
        log = self.log
        match effect:
            case Admitted(connection, peer, kind):
                log.info("connected", peer=peer, kind=kind, connection=connection)
            case Parted(connection, peer, address, why):
                log.info("disconnected", peer=peer, connection=connection, address=address, why=why)
            case Unreached(target, why, _, is_news):
                if is_news:  # once, however often it is tried
                    log.warning("neighbour away", peer=target, why=why, remedy="it is tried again; see that it runs")
            case Heard(neighbour, True):
                log.info("neighbour heard", peer=neighbour)
            case Heard(neighbour, False, why):
                remedy = f"it is dialled until it is back, and what is for it waits; look at broker {neighbour!r}"
                log.warning("neighbour lost", peer=neighbour, why=why, remedy=remedy)
            case Report(level, event, facts):
                getattr(log, level)(event, **facts)
            case _:
                raise AssertionError(f"a broker delivers nothing itself: {effect}")

    def _fail(self, error: StoreError) -> None:
        self.log.error("store failed", why=str(error))
        self._failure = error
        self.driver.node.is_deaf = True  # nothing that comes now can be promised
        self._stop.set()

    def _stop_broken(self, error: Exception) -> None:
        """Promise nothing more; what was promised is on disk, and the next life goes on with it."""
        if self._failure is None:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}, line {frame.lineno}"
            self.log.error("internal error", why=f"{type(error).__name__}: {error}", where=where)
            self._failure = BrokenError(f"broker {self.name!r} has stopped: {type(error).__name__} in {where}: {error}")
            self.driver.node.is_deaf = True
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
        for task in self._tasks:
            task.cancel()
        node = self.driver.node
        if self._failure is None:
            self.driver.tell(node.drain)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.network.document.network.drain_s):
                    while self._is_handing_over() and not node.is_deaf:
                        await asyncio.sleep(_POLL_S)
        with contextlib.suppress(Exception) if self._failure is not None else contextlib.nullcontext():
            self.driver.tell(node.end, "the broker stops")
            self.driver.flush()
        while self._failure is None and not (node.commits.is_idle or node.commits.is_full):
            await asyncio.sleep(_POLL_S)
        self.driver.stop()
        await self.committer.close()
        if self.driver.tracer is not None:
            self.driver.tracer.close()
        self.store.close()
        self.log.info("stopped", held=len(self.machine.carrier.holdings), seconds=self.up_s)

    def _is_handing_over(self) -> bool:
        """Whether anything is on its way to somebody who is there."""
        machine = self.machine
        peers: list[Any] = [*machine.neighbours.values(), *machine.clients.values()]
        return any(peer.is_up and (peer.outbox.queued or peer.outbox.under_way) for peer in peers)
