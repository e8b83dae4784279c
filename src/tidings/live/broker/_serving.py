"""Broker processes: one in this process (`serve`), or all of a network as processes of their own (`Supervisor`).

The supervisor starts every broker of the file, starts again what dies (at once the first time, ever more slowly while
it goes on dying), and on SIGTERM or SIGINT tells all to drain and waits for them. A broker that cannot start when the
network does (its port is taken, its store cannot be read) ends it all, with the reason: starting it again would not
help. Children are forked from a server process that has loaded everything already, so a broker that is started again
serves within moments. A child ends when its supervisor is gone, however that went: nothing is left behind. A terminal
sends SIGINT to all of them, so children leave it to their supervisor.

On SIGHUP it reads the file again: brokers that are new are started, those that stay are told (SIGHUP) to follow it
too, and those that are not in it any more leave (`_reloading`) and are not started again. A file that cannot be
followed changes nothing.
"""

import asyncio
import gc
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import FrameType
from typing import Final

from tidings.errors import TidingsError
from tidings.live.configuration._changes import change_of
from tidings.live.configuration._config import Network, read_network
from tidings.live.operations._logs import Log
from tidings.live.operations._supervision import Supervision, supervision_file

__all__ = ["Supervisor", "serve", "serve_child"]

PATIENCE_S: Final = 2.0
"""How much longer than its drain time a broker may take to leave before it is killed."""
RESTART_MOST_S: Final = 5.0
STEADY_S: Final = 2.0
"""A broker that has lived so long is started again at once when it dies."""
SWITCH_S: Final = 0.0005
"""How long the thread that commits waits for a busy event loop before it may say that it is done."""
COLLECTION: Final = (50_000, 20, 100)
"""The collector's thresholds in a broker process."""
_POLL_S: Final = 0.02


def serve(network: Network, name: str, log: Log, *, ends_with: int | None = None) -> None:
    """Run one broker in this process until a signal ends it, or until this descriptor can be read."""
    import uvloop

    from tidings.live.broker._node import BrokerNode

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, facts: _log_trouble(log, facts))
        node = BrokerNode(network, name, log)

        def stop() -> None:
            assert ends_with is not None
            loop.remove_reader(ends_with)
            node.stop()

        if ends_with is not None:
            loop.add_reader(ends_with, stop)
        await node.run()

    # Machines free what they hold without the collector's help; a look at everything that is held would stop them for
    # tens of milliseconds, so it is a rare event.
    gc.set_threshold(*COLLECTION)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # until the broker listens: then it reads its file again
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def serve_child(path: str, name: str, log: str) -> None:
    """Run one broker in a process that was started for it, until that is over or who started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    with Path(log).open("a", encoding="utf-8") as stream:
        serve(read_network(Path(path)), name, Log(name, stream=stream), ends_with=parent.sentinel)


def _log_trouble(log: Log, facts: dict[str, object]) -> None:
    error = facts.get("exception")
    log.warning("trouble", what=str(facts.get("message", "")), why=f"{type(error).__name__}: {error}")


def _child(path: str, name: str, failure: Connection) -> None:
    log = Log(name)
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None
    try:
        serve(read_network(Path(path)), name, log, ends_with=supervisor.sentinel)
    except TidingsError as error:
        log.error("failed", why=str(error))
        failure.send(str(error))
        sys.stderr.flush()
        os._exit(error.exit_code)


class _Child:
    """One broker's process, and how often it had to be started."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: ForkServerProcess | None = None
        self.failure: Connection  # by which the process says why it ends
        self.starts = 0
        self.began_s = 0.0
        self.due_s = 0.0
        self.wait_s = 0.0
        self.leaves_by_s: float | None = None
        """By when a broker that is not in the file any more has to be gone."""


class Supervisor:
    """All brokers of a network on this machine."""

    def __init__(self, network: Network, log: Log) -> None:
        self._network = network
        self._log = log
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tidings.live.broker._preload", "uvloop"])
        self._children = {name: _Child(name) for name in network.brokers}
        self._told = Supervision(pid=os.getpid())
        self._stopping = self._reloading = False
        self._starting = set(self._children)  # who has not served yet since the network was started
        self._had_terminal = os.isatty(0)

    def run(self) -> None:
        """Start all brokers and keep them running until a signal ends it; TidingsError if one cannot start."""
        handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop, signal.SIGHUP: self._hung_up}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        self._tell()
        try:
            self._start_server()
            while not self._stopping:
                if self._reloading:
                    self._reload()
                for child in list(self._children.values()):
                    if child.leaves_by_s is None:
                        self._look_after(child)
                    else:
                        self._see_off(child, child.leaves_by_s)
                time.sleep(_POLL_S)
        finally:
            self._end()
            self._told.erase(self._network)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._stopping = True

    def _hung_up(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """From whoever has changed the file, or because the terminal is gone."""
        if self._had_terminal and not os.isatty(0):
            self._stopping = True
        else:
            self._reloading = True

    def _reload(self) -> None:
        self._reloading = False
        self._told.reloads += 1
        try:
            after = read_network(self._network.path)
            change = change_of(self._network, after)
        except TidingsError as error:
            self._log.error("reload refused", why=str(error))
            self._told.refused = str(error)
            self._tell()
            return
        self._log.info("reloaded", change=str(change))
        self._network = after
        leaves_by_s = time.monotonic() + 2 * after.document.network.drain_s + PATIENCE_S
        for child in self._children.values():
            child.leaves_by_s = None if child.name in after.brokers else leaves_by_s
            if child.process is not None and child.process.pid is not None and child.process.exitcode is None:
                os.kill(child.process.pid, signal.SIGHUP)
        for name in change.added:
            self._children.setdefault(name, _Child(name))
        self._told.refused, self._told.change = None, str(change)
        self._tell()

    def _tell(self) -> None:
        """Brokers go on, whoever cannot be told of them."""
        self._told.brokers = [*self._children]
        try:
            self._told.write(self._network)
        except OSError as error:
            self._log.warning("no reload", why=f"{supervision_file(self._network)}: {error.strerror or error}")

    def _see_off(self, child: _Child, leaves_by_s: float) -> None:
        """A broker that is not in the file any more is gone, or goes."""
        process = child.process
        if process is not None and process.exitcode is None:
            if time.monotonic() > leaves_by_s:
                self._log.error("broker killed", broker=child.name, pid=process.pid, why="it did not leave in time")
                process.kill()
            return
        del self._children[child.name]
        self._log.info("broker left", broker=child.name)
        self._tell()

    def _start_server(self) -> None:
        """Start the process that children are forked from, with SIGINT blocked in it and so in all of them."""
        resource_tracker.ensure_running()  # first: it would unblock the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def _look_after(self, child: _Child) -> None:
        now_s = time.monotonic()
        process = child.process
        lived_s = now_s - child.began_s
        if process is not None and process.exitcode is not None:
            child.process = None
            if process.exitcode > 0 and child.name in self._starting:
                why = child.failure.recv() if child.failure.poll() else f"exit code {process.exitcode}"
                raise TidingsError(f"{self._network.path}: the network was not started: {why}")
            child.wait_s = 0.0 if lived_s > STEADY_S else min(max(2 * child.wait_s, 0.1), RESTART_MOST_S)
            if child.starts == 1 and process.exitcode < 0:
                child.wait_s = 0.0
            child.due_s = now_s + child.wait_s
            self._log.warning("broker died", broker=child.name, exit_code=process.exitcode, again_in_s=child.wait_s)
        elif process is not None and lived_s > STEADY_S:
            self._starting.discard(child.name)
        if child.process is None and now_s >= child.due_s:
            child.failure, told = self._context.Pipe(duplex=False)
            child.process = self._context.Process(
                target=_child, args=(str(self._network.path), child.name, told), name=f"tidings {child.name}"
            )
            child.process.start()
            told.close()
            child.starts += 1
            child.began_s = now_s
            self._log.info("broker started", broker=child.name, pid=child.process.pid, starts=child.starts)

    def _end(self) -> None:
        processes = [child.process for child in self._children.values() if child.process is not None]
        for process in processes:
            if process.exitcode is None:
                process.terminate()
        until_s = time.monotonic() + self._network.document.network.drain_s + PATIENCE_S
        for process in processes:
            process.join(max(until_s - time.monotonic(), 0.0))
            if process.exitcode is None:
                self._log.error("broker killed", pid=process.pid, why="it did not leave in time")
                process.kill()
                process.join()
        self._log.info("all brokers stopped")
