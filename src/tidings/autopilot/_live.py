"""The autopilot over a live network: it asks brokers, has plans made in a thread, and gives orders.

- Accounts, homes and the strategy come from the status of the brokers, as `tidings status` shows it.
- A publisher is moved by the same order as with `tidings place --apply`. It is not moved if it has subscriptions too
  (they would move with it, which no forecast includes), if it is not among the publishers that its broker lists, or if
  brokers move publishers themselves (`relocation`).
- The strategy is changed in the network file, and reloaded by the supervisor on this machine. Without one it stays.
- One autopilot per network: the audit log is locked while it runs.
- The kill switch is a file beside the log. It is looked for before each order and with each observation.
"""

import asyncio
import contextlib
import fcntl
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from tidings.autopilot._audit import AuditLog, Change, Memory, Record
from tidings.autopilot._machine import Apply, AskPlan, Autopilot, AutopilotSettings, Effect, Note, Revert
from tidings.autopilot._measure import Account, Observation
from tidings.autopilot._network_file import replace_text, use_strategy
from tidings.autopilot._profiles import Profiles, RoundTrips
from tidings.autopilot._proposal import Proposal, propose, warm_up
from tidings.errors import ConfigurationError, InputError, TidingsError
from tidings.live import Network, read_network
from tidings.live.operations import ask_network, ask_to_reload, move_clients, read_supervision, subscribers_of
from tidings.model.policies import DEFAULT_RELOCATION
from tidings.planning import Change as AnyChange
from tidings.planning import MovePublisher, UseStrategy

__all__ = ["Files", "fly", "observation_of", "stop_flight"]

T = TypeVar("T")

POLL_S: Final = 2.0
PATIENCE_S: Final = 30.0
"""How long brokers may take to use another strategy, and a running autopilot to stop."""
PATIENCE_ASKED_S: Final = 3.0
"""A broker that does not answer for so long counts as down in this observation."""
_LOOK_S: Final = 0.2


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """The audit log, and the kill switch: while this file exists, nothing is changed."""

    log: Path
    switch: Path

    @classmethod
    def of(cls, network: Path, log: Path | None = None) -> "Files":
        """Beside the network file, unless the log is elsewhere."""
        log = network.with_name(f"{network.stem}.autopilot.jsonl") if log is None else log
        return cls(log=log, switch=log.with_suffix(".stop"))


def stop_flight(files: Files) -> bool:
    """Set the kill switch, and wait until no autopilot runs; whether one did."""
    try:
        files.switch.touch()
    except OSError as error:
        raise InputError(f"{files.switch}: cannot be written: {error.strerror or error}") from None
    if not files.log.exists():
        return False
    until_s, was_running = time.monotonic() + PATIENCE_S, False
    with files.log.open("rb") as log:
        while True:
            try:
                fcntl.flock(log.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                was_running = True
            else:
                return was_running
            if time.monotonic() > until_s:
                raise TidingsError(
                    f"{files.switch}: is set, but the autopilot still runs after {PATIENCE_S:g} s; it makes no further "
                    "change, and ends when the order under way has been answered"
                )
            time.sleep(_LOOK_S)


async def fly(
    path: Path,
    settings: AutopilotSettings,
    profiles: Callable[[Network], Profiles],
    files: Files,
    *,
    report: Callable[[Record], None],
    poll_s: float = POLL_S,
) -> None:
    """Run until the kill switch is set, or SIGINT or SIGTERM comes."""
    network = read_network(path)
    source = profiles(network)
    if files.switch.exists():
        raise ConfigurationError(f"{files.switch}: the kill switch is set; remove this file to let the autopilot fly")
    with contextlib.closing(_locked(files.log)) as log:
        await _Flight(network, settings, source, files, log, report, poll_s).fly()


def _locked(path: Path) -> AuditLog:
    log = AuditLog(path)
    try:
        fcntl.flock(log.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        log.close()
        raise ConfigurationError(
            f"{path}: another autopilot writes this log; stop it with `tidings autopilot NETWORK --stop`"
        ) from None
    return log


class _Flight:
    def __init__(
        self,
        network: Network,
        settings: AutopilotSettings,
        profiles: Profiles,
        files: Files,
        log: AuditLog,
        report: Callable[[Record], None],
        poll_s: float,
    ) -> None:
        self._network, self._profiles, self._files, self._log = network, profiles, files, log
        self._settings, self._report, self._poll_s = settings, report, poll_s
        self._autopilot = Autopilot(settings, Memory(log.records))
        self._task: asyncio.Task[list[Effect]] | None = None  # the plan or order under way
        self._is_order = False
        self._stopped = asyncio.Event()
        self._why = "stopped by a signal"
        self._status: list[dict[str, Any]] = []

    async def fly(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopped.set)
        self._warming = asyncio.create_task(_in_thread(warm_up))
        try:
            while not self._is_stopped():
                began_s = time.monotonic()
                await self._look()
                while not self._is_stopped() and time.monotonic() < began_s + self._poll_s:
                    await self._wait()
            await self._end()
        finally:
            self._warming.cancel()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _is_stopped(self) -> bool:
        if not self._stopped.is_set() and self._files.switch.exists():
            self._why = f"stopped by {self._files.switch}"
            self._stopped.set()
        return self._stopped.is_set()

    async def _look(self) -> None:
        """Ask all brokers, and let the autopilot decide."""
        self._status = await ask_network(self._network, patience_s=PATIENCE_ASKED_S)
        self._carry_out(self._autopilot.observe(observation_of(self._status, time.time())))

    async def _wait(self) -> None:
        """Until the task is done, a signal comes, or some time has passed."""
        stopping = asyncio.ensure_future(self._stopped.wait())
        waiting = {stopping} if self._task is None else {stopping, self._task}
        await asyncio.wait(waiting, timeout=min(_LOOK_S, self._poll_s), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        self._collect()

    def _collect(self) -> None:
        if self._task is not None and self._task.done():
            task, self._task, self._is_order = self._task, None, False
            self._carry_out(task.result())

    async def _end(self) -> None:
        """Nothing new begins. The answer to an order is waited for, because the log has to say what became of it."""
        self._carry_out(self._autopilot.stop(time.time(), self._why))
        if self._task is not None:
            if self._is_order:
                await asyncio.wait({self._task})
                self._collect()
            else:
                self._task.cancel()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Note(record=record):
                    self._log.write(record)
                    self._report(record)
                case AskPlan():
                    self._task = asyncio.create_task(self._plan(effect))
                case Apply(change=change):
                    self._order(change, self._autopilot.applied)
                case Revert(inverse=inverse):
                    self._order(inverse, self._autopilot.reverted)

    # -- orders --------------------------------------------------------------------------------------------------------

    def _order(self, change: Change, answer: Callable[..., list[Effect]]) -> None:
        async def work() -> list[Effect]:
            if self._is_stopped():
                return answer(time.time(), done=False, why="the autopilot was stopped before the order was given")
            try:
                why = await self._make(change)
            except TidingsError as error:
                why = str(error)
            return answer(time.time(), done=not why, why=why)

        self._task, self._is_order = asyncio.create_task(work()), True

    async def _make(self, change: Change) -> str:
        """Make the change; why it could not be made, empty if it was."""
        match change:
            case MovePublisher(publisher=client, broker=broker):
                (outcome,) = await move_clients(self._network, {client: broker})
                return "" if outcome.outcome in ("moved", "there already") else f"{outcome.outcome}: {outcome.why}"
            case UseStrategy(strategy=strategy):
                return await self._use_strategy(strategy)

    async def _use_strategy(self, strategy: str) -> str:
        path = self._network.path
        before = use_strategy(path, strategy)
        try:
            await asyncio.to_thread(ask_to_reload, self._network)
        except TidingsError:
            replace_text(path, before)
            raise
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            found = [broker for broker in await ask_network(self._network) if broker["up"]]
            if found and all(broker.get("strategy") == strategy for broker in found):
                return ""
            await asyncio.sleep(_LOOK_S)
        replace_text(path, before)
        await asyncio.to_thread(ask_to_reload, self._network)
        return f"not all brokers used it within {PATIENCE_S:g} s; the file is as before"

    # -- plans ---------------------------------------------------------------------------------------------------------

    async def _plan(self, asked: AskPlan) -> list[Effect]:
        """A proposal for the network as it was measured; one without steps, and the reason, if that is not possible."""
        try:
            self._network = read_network(self._network.path)
            seen, status = observation_of(self._status, time.time()), self._status
            await self._warming
            proposal = await _in_thread(lambda: self._propose(asked, seen, status))
        except (TidingsError, OSError, ValueError) as error:  # files may be removed while they are read
            proposal = Proposal(words=f"no plan: {error}")
        return self._autopilot.planned(time.time(), proposal)

    def _propose(self, asked: AskPlan, seen: Observation, status: list[dict[str, Any]]) -> Proposal:
        round_trips_s: RoundTrips = {
            (broker["name"], other): peer["rtt_s"]
            for broker in status
            if broker["up"]
            for other, peer in broker["neighbours"].items()
            if peer["rtt_s"] is not None
        }
        strategy: Any = seen.strategy or self._network.document.network.strategy
        measured = self._profiles.network(round(asked.since_s * 1e9), strategy=strategy, round_trips_s=round_trips_s)
        return propose(
            measured,
            self._settings.objective,
            may=_Permits(self._network, seen, status, asked),
            worths=asked.worths,
            measured=asked.measured,
            gain_least=self._settings.gain_least,
            known_as=_live,
        )


async def _in_thread(work: Callable[[], T]) -> T:
    """Call this in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(found: T | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_result(cast("T", found)) if error is None else done.set_exception(error)

    def run() -> None:
        try:
            found, error = work(), None
        except BaseException as raised:  # raised again where the result is awaited
            found, error = None, raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, found, error)

    threading.Thread(target=run, name="tidings-autopilot", daemon=True).start()
    return await done


class _Permits:
    """What may be changed now."""

    def __init__(self, network: Network, seen: Observation, status: list[dict[str, Any]], asked: AskPlan) -> None:
        self._seen, self._left_alone = seen, asked.left_alone
        self._brokers = network.brokers.keys() - seen.down
        self._subscribers = {each["client"] for broker in status for each in broker["subscribers"]}
        self._moves = network.document.network.relocation == DEFAULT_RELOCATION
        try:
            read_supervision(network)
            self._is_supervised = seen.strategy is not None and not network.document.network.r
        except TidingsError:
            self._is_supervised = False

    def __call__(self, change: AnyChange) -> bool:
        match change:
            case MovePublisher(publisher=publisher, broker=broker):
                moved = _live(change)
                client = _client_of(publisher)
                return (
                    self._moves
                    and broker in self._brokers
                    and self._seen.homes.get(client, broker) != broker
                    and client not in self._subscribers
                    and moved.slot not in self._left_alone
                )
            case UseStrategy(strategy=strategy):
                return self._is_supervised and strategy != "ebpc" and change.slot not in self._left_alone
            case _:
                return False


def _client_of(publisher: str) -> str:
    """Traces name a publisher `client/epoch`."""
    client, separator, _ = publisher.rpartition("/")
    return client if separator else publisher


def _live(change: Change) -> Change:
    """The change of a measured network as one of the live network."""
    if isinstance(change, MovePublisher):
        return msgspec.structs.replace(change, publisher=_client_of(change.publisher))
    return change


def observation_of(brokers: list[dict[str, Any]], at_s: float) -> Observation:
    """What the status of the brokers says."""
    subscribers: Mapping[str, Mapping[str, Any]] = subscribers_of(brokers)
    up = [broker for broker in brokers if broker["up"]]
    strategies = {broker.get("strategy") for broker in up}
    return Observation(
        at_s=at_s,
        accounts={
            name: Account(
                on_time=each["on_time"],
                settled=each["on_time"] + each["late"] + each["dropped"] + each["lost"],
                matched=each["matched"],
                max_delay_s=each["max_delay_s"],
            )
            for name, each in subscribers.items()
            if each["on_time"] is not None
        },
        homes={
            each["client"]: broker["name"]
            for broker in up
            for each in broker.get("publishers", ())
            if each["connected"]
        },
        strategy=strategies.pop() if len(strategies) == 1 else None,
        down=frozenset(broker["name"] for broker in brokers if not broker["up"]),
    )
