"""One broker process: a store, a machine, a listener, connections to neighbours; from start to drained end.

- It listens once its store has been read, and sends its first message once its new epoch is durable.
- Kernels that only queue decisions need are loaded by another thread while the broker serves (`_warmup`): they are
  most of what a process has to load.
- Of two neighbours, the one whose name sorts first dials the other.
- On SIGTERM or SIGINT it drains: it takes no more events (they are not acknowledged, so their senders keep them), hands
  over those it holds for up to `drain`, makes everything durable and exits. The rest is sent after the next start.
- On SIGHUP it reads its file again and applies what a running broker can apply (`_reload`).
- A store that cannot be written ends the process with exit code 1. A full store does not: nothing is acknowledged until
  there is room.
"""

import asyncio
import contextlib
import errno
import gc
import os
import random
import signal
import socket
import ssl
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidings.errors import TidingsError
from tidings.live._errors import BrokenError, StoreError
from tidings.live.broker._warmup import warming
from tidings.live.configuration._config import Network
from tidings.live.operations._history import History
from tidings.live.operations._logs import Log
from tidings.live.operations._orders import answer_operator
from tidings.live.operations._reload import Reloading
from tidings.live.operations._status import Load, Snapshots, answer_status
from tidings.live.security._secrets import is_open, new_secret
from tidings.live.security._tls import dialling_context, listening_context
from tidings.live.storage._committer import Committer
from tidings.live.storage._store import Store
from tidings.live.transport._clock import Clock
from tidings.live.transport._driver import Driver, Tracer
from tidings.live.transport._listener import BACKLOG, TlsListener
from tidings.model.filters import Filter
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
    Rule,
    Token,
    Unreached,
)

if TYPE_CHECKING:
    from tidings.live.broker._mqtt import MqttDoor
    from tidings.live.operations._metrics import MetricsServer
    from tidings.live.traces._exporter import SpanExporter
    from tidings.live.traces._recorder import Recorder

__all__ = ["BrokerNode"]

PARTING_S: Final = 1.0
"""How long peers may take to close their ends when the broker stops."""
_POLL_S: Final = 0.02
_TICK_S: Final = 0.25
AWAY_S: Final = 2.0
"""How long a neighbour may be out of reach before that is reported."""
MQTT_ROOM_BYTES: Final = 16_384
"""By so much an MQTT packet has to be shorter than a frame: attributes come with it."""


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Everything in the store is in use: searching it for garbage would take longer than reading it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


class BrokerNode:
    """A running broker."""

    def __init__(self, network: Network, name: str, log: Log, *, on_serving: Callable[[], None] = lambda: None) -> None:
        self.network = network
        self.entry = network.broker(name)
        self.name = name
        self.log = log
        self.load = Load()
        self.history = History(self)
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
        self._on_serving = on_serving
        self._heard = set[str]()  # neighbours
        self.door: MqttDoor | None = None
        self._door_token = new_secret()
        self.recorder: Recorder | None = None
        """Keeps what `tidings profile` asks for, unless the file says that it should not."""
        self.spans: SpanExporter | None = None
        """Exports spans, if the file asks for it."""

    @property
    def machine(self) -> Broker:
        """The broker as the protocol knows it."""
        assert isinstance(self.driver.node.machine, Broker)
        return self.driver.node.machine

    @property
    def is_draining(self) -> bool:
        """Whether it takes no more events and is about to stop."""
        return self._stop.is_set()

    async def run(self) -> None:
        """Serve until a signal stops it; StoreError when the store fails."""
        self.open()
        self.history.look()  # so that the first row counts from the first event on
        listener: asyncio.Server | TlsListener | None = None
        metrics: MetricsServer | None = None
        try:
            listener = await self._listen()
            self._dial_all()
            self._tasks.append(asyncio.create_task(self.load.measure(self.history.look)))
            self._tasks.append(asyncio.create_task(self._tick()))
            self._tasks.append(asyncio.create_task(warming(self.network.settings_of(self.name), self.log)))
            if self.entry.metrics is not None:
                from tidings.live.operations._metrics import serve_metrics
                from tidings.live.page._application import page_application

                metrics = serve_metrics(self, self.entry.metrics, page_application)
            if self.entry.has_mqtt:
                self.door = await self._open_door()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.stop)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reloading.hung_up, os.isatty(0))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one may have come before (`serve`)
            self.log.info("serving", listen=str(self.entry.listen), epoch=self.machine.epoch, seconds=self.up_s)
            self._on_serving()
            await self._stop.wait()
        finally:
            if listener is not None:
                listener.close()
            await self._drain()
            if metrics is not None:  # until here it shows how the broker drains
                metrics.close()
            await self._end()
        if self._failure is not None:
            raise self._failure

    @property
    def up_s(self) -> float:
        """How long this process has been running."""
        return round(time.monotonic() - self.began_s, 3)

    def stop(self) -> None:
        """Drain and exit; the second request exits at once."""
        if self._stop.is_set():
            self.driver.node.is_deaf = True
        self._stop.set()

    def open(self) -> None:
        """Read the store and start the machine."""
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
            on_committed=lambda: self.driver.call_node(node.committed),
            on_refused=lambda error: self.driver.call_node(node.refused, str(error)),
            on_failure=self._fail,
        )
        self.driver.committer = self.committer
        self.driver.tracer = self._tracer(found.noted_ns)
        self.driver.start()
        if any(token.token is not None for token in self.network.document.token) and is_open(self.network.path):
            remedy = f"chmod o= {self.network.path}, or give token_file instead of token"
            self.log.warning("tokens readable by everybody", file=str(self.network.path), remedy=remedy)
        self.log.info(
            "started",
            kept=len(found.kept),
            held=len(machine.carrier.holdings),
            read_s=round(read_s, 3),
            restored_s=round(time.monotonic() - began_s - read_s, 3),
        )

    def _tracer(self, since_ns: int) -> "Tracer | None":
        """What writes traces, keeps rows for profiles and exports spans, as the file asks for; what it does not ask for
        is not loaded."""
        trace, profiles, tracers = self.network.document.trace, self.network.document.profiles, list[Tracer]()
        if trace is not None and trace.directory is not None:
            from tidings.live.traces._writer import TraceWriter

            tracers.append(TraceWriter(self, since_ns))
        if profiles.record:
            from tidings.live.traces._recorder import Recorder
            from tidings.live.traces._window import Window

            span_ns, size_bytes = round(profiles.window_s * 1e9), round(profiles.size_kb * 1000)
            now_ns = self.driver.clock.now_ns()
            self.recorder = Recorder(self, Window(span_ns=span_ns, size_bytes=size_bytes, now_ns=now_ns))
            tracers.append(self.recorder)
        if trace is not None and trace.otlp is not None:
            from tidings.live.traces._span_writer import SpanWriter

            writer = SpanWriter(self)
            self.spans = writer.exporter
            tracers.append(writer)
        if len(tracers) < 2:
            return tracers[0] if tracers else None
        from tidings.live.traces._tracers import Tracers

        return Tracers(tracers)

    # -- those who come ------------------------------------------------------------------------------------------

    async def _listen(self) -> asyncio.Server | TlsListener:
        tls = self.network.tls_of(self.name)
        self.listening = None if tls is None else listening_context(tls)
        listen = self.entry.listen
        try:
            if self.listening is not None:
                return await TlsListener.open(listen.host, listen.port, self._accept_tls)
            return await asyncio.get_running_loop().create_server(
                self.driver.accept, listen.host, listen.port, backlog=BACKLOG
            )
        except OSError as error:
            why, remedy = error.strerror or str(error), "check `listen` in the network file"
            if error.errno == errno.EADDRINUSE:
                why, remedy = "the port is in use", "stop the process that listens there, or choose another port"
            raise TidingsError(f"broker {self.name!r} cannot listen at {listen}: {why}; {remedy}") from None

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

    async def _open_door(self) -> "MqttDoor":
        """Let MQTT clients in; only brokers that do load what that needs."""
        from tidings.live.broker._mqtt import MqttDoor
        from tidings.mqtt import GatewaySettings

        limits = self.network.document.limits
        settings = GatewaySettings(
            broker=self.name,
            has_tokens=bool(self.network.tokens),
            retaining_token=self._door_token if self.network.tokens else None,
            json_topics=self.entry.mqtt_json,
            max_packet_bytes=round(limits.frame_kb * 1000) - MQTT_ROOM_BYTES,
            max_lifetime_ns=round(limits.lifetime_s * 1e9),
            max_session_s=int(limits.away_s),
            max_connections=limits.connections,
        )
        door = MqttDoor(self, settings, self._fail)
        await door.open()
        door.bridge(self._door_token if self.network.tokens else None)
        return door

    def _door_rights(self) -> tuple[tuple[Token, ...], tuple[Rule, ...]]:
        """What lets the door's own client in, which collects retained messages."""
        if not self.entry.has_mqtt:
            return (), ()
        from tidings.mqtt import RETAINED_FILTER, bridge_client, retaining_client

        name = retaining_client(self.name)
        bridges = [bridge_client(each.name) for each in self.network.document.bridge if each.broker == self.name]
        tokens = tuple(Token(identity=each, secret=self._door_token) for each in (name, *bridges))
        rules = (
            Rule(identity=name, subscribe=Filter.parse(RETAINED_FILTER), publish=False, advertise=False),
            *(Rule(identity=each, subscribe=True, publish=True, advertise=True) for each in bridges),
        )
        return tokens if self.network.tokens else (), rules if self.network.rules else ()

    def _admission(self) -> Admission:
        """Who may connect to this broker, according to the file."""
        network = self.network
        tokens, rules = self._door_rights()
        return Admission(
            name=self.name,
            brokers=frozenset(network.brokers),
            neighbours=network.links[self.name],
            broker_token=network.shared_token(),
            is_token_implied=network.is_token_implied,
            trusts_old=network.is_token_implied and network.document.network.wire_version < VERSION,
            tokens=(*tokens, *network.tokens),
            rules=(*rules, *network.rules),
            budgets=network.budgets,
            budget=network.budget,
            has_certificates=network.document.tls is not None,
            client_certificates=network.document.tls is not None and network.document.tls.client_certificates,
        )

    def _credentials(self) -> Credentials:
        """The credentials with which this broker proves its identity, according to the file."""
        network = self.network
        return Credentials(token=network.shared_token(), is_token_implied=network.is_token_implied)

    def _answer(self, preamble: Preamble) -> Answer:
        """The answer to a single question (`transport._question`)."""
        if preamble.kind == "operator":
            return answer_operator(self, preamble.detail)
        return Answer(detail=answer_status(self, preamble.detail))

    # -- those whom this broker goes to --------------------------------------------------------------------------

    def _dialling_context(self) -> ssl.SSLContext | None:
        tls = self.network.tls_of(self.name)  # certificates may have been renewed
        return None if tls is None else dialling_context(tls)

    def _dial_all(self) -> None:
        """Dial the neighbours whose names sort after this one, and nobody else."""
        dialled = {other for other in self.machine.settings.neighbours if self.name < other}
        targets = self.driver.node.dials.targets
        for other in sorted(targets.keys() - dialled):
            self.driver.call_node(self.driver.node.unwant, other)
        for other in sorted((dialled - targets.keys()) & self.network.brokers.keys()):
            address = str(self.network.broker(other).reached_at)
            self.driver.call_node(self.driver.node.want, other, address, other)

    # -- another file --------------------------------------------------------------------------------------------

    def adopt(self, network: Network) -> None:
        """Use this network from now on; `rewire` has to follow."""
        self.network = network
        self.driver.call_node(self.driver.node.readmit, self._admission(), self._credentials())
        self.driver.node.directory = self._known()

    def rewire(self, neighbours: frozenset[str]) -> None:
        """Use these neighbours from now on."""
        self.driver.call(self.machine.rewire, neighbours, self.network.links)
        self._dial_all()

    def _known(self) -> Directory:
        """What clients learn about the network."""
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
                    asyncio.get_running_loop().call_later(AWAY_S, self._report_away, target, why)
            case Heard(neighbour, True):
                self._heard.add(neighbour)
                log.info("neighbour heard", peer=neighbour)
            case Heard(neighbour, False, why):
                self._heard.discard(neighbour)
                remedy = f"it is dialled until it is back, and its events wait; check that broker {neighbour!r} runs"
                if self.is_draining:  # others stop, too
                    log.info("neighbour lost", peer=neighbour, why=why)
                else:
                    log.warning("neighbour lost", peer=neighbour, why=why, remedy=remedy)
            case Report(level, event, facts):
                getattr(log, level)(event, **facts)
            case _:
                raise AssertionError(f"a broker delivers nothing itself: {effect}")

    def _report_away(self, neighbour: str, why: str) -> None:
        """Brokers that start together miss each other for a moment; only a longer absence is reported."""
        if neighbour not in self._heard and neighbour in self.network.links[self.name] and not self.is_draining:
            remedy = f"it is dialled until it answers; check that broker {neighbour!r} runs"
            self.log.warning("neighbour away", peer=neighbour, why=why, remedy=remedy)

    def _fail(self, error: StoreError) -> None:
        self.log.error("store failed", why=str(error))
        self._failure = error
        self.driver.node.is_deaf = True  # nothing that arrives now can be accepted
        self._stop.set()

    def _stop_broken(self, error: Exception) -> None:
        """Accept nothing more; what was accepted is on disk, and the next start continues with it."""
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

    async def _drain(self) -> None:
        """Hand over to connected peers what is under way, for as long as `drain` of the network file says."""
        held = len(self.machine.carrier.holdings)
        self.log.info("draining", held=held)
        self._reloading.close()
        if self.door is not None:
            self.door.close()
        for task in self._tasks:
            task.cancel()
        node = self.driver.node
        if self._failure is None:
            self.driver.call_node(node.drain)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.network.document.network.drain_s):
                    while self._is_handing_over() and not node.is_deaf:
                        await asyncio.sleep(_POLL_S)

    async def _end(self) -> None:
        node = self.driver.node
        with contextlib.suppress(Exception) if self._failure is not None else contextlib.nullcontext():
            self.driver.call_node(node.end, "the broker stops")
            self.driver.flush()
        while self._failure is None and not (node.commits.is_idle or node.commits.is_full):
            await asyncio.sleep(_POLL_S)
        await self._part()
        self.driver.stop()
        if self.door is not None:
            await self.door.end()
        await self.committer.close()
        if self.driver.tracer is not None:
            self.driver.tracer.close()
        self.store.close()
        self.log.info("stopped", held=len(self.machine.carrier.holdings), seconds=self.up_s)

    async def _part(self) -> None:
        """Give peers a moment to read why they are disconnected, and to close."""
        connections = [*self.driver.connections.values(), *(() if self.door is None else self.door.connections)]
        until_s = time.monotonic() + PARTING_S
        while any(each.is_open for each in connections) and time.monotonic() < until_s:
            await asyncio.sleep(_POLL_S)
        for each in connections:
            if each.is_open:
                each.abort("the broker stops")

    def _is_handing_over(self) -> bool:
        """Whether anything is still under way to a connected peer."""
        machine = self.machine
        peers: list[Any] = [*machine.neighbours.values(), *machine.clients.values()]
        return any(peer.is_up and (peer.outbox.queued or peer.outbox.under_way) for peer in peers)
