"""Broker processes: one in this process (`serve`), or one process for each broker of a network (`Supervisor`).

The supervisor starts every broker of the file and restarts those that die: at once the first time, then with growing
pauses. On SIGTERM or SIGINT it has all of them drain and waits for them. If a broker cannot start when the network
does (its port is in use, its store cannot be read), the supervisor stops with the reason: a restart would not help.
Children are forked from a server process that has everything loaded, so a restarted broker serves within moments. That
process compiles kernels at the first start after an installation, for half a minute or more; the supervisor reports it
and obeys signals meanwhile. A child exits when its supervisor is gone, for whatever reason, so no process is left
behind. A terminal sends SIGINT to all of them; children ignore it and wait for their supervisor.

On SIGHUP the supervisor reads the file again: it starts new brokers, sends SIGHUP to those that stay, and lets those
that are no longer in the file leave (`_reload`) without restarting them. A file that cannot be applied changes nothing.
"""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
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
"""How much longer than its drain time a broker may take to exit before it is killed."""
RESTART_MOST_S: Final = 5.0
STEADY_S: Final = 2.0
"""A broker that has run for this long is restarted at once when it dies."""
SWITCH_S: Final = 0.0005
"""How long the commit thread waits for a busy event loop before it may report a commit."""
COLLECTION: Final = (50_000, 20, 100)
"""The garbage collector's thresholds in a broker process."""
_POLL_S: Final = 0.02
SLOW_START_S: Final = 5.0
"""A start that takes longer than this is reported, with the usual reason."""
SERVING: Final = ""
"""What a broker process reports to its supervisor when it serves; anything else is why it ends."""


def serve(
    network: Network,
    name: str,
    log: Log,
    *,
    ends_with: int | None = None,
    on_serving: Callable[[], None] = lambda: None,
) -> None:
    """Run one broker in this process until a signal stops it, or until this descriptor becomes readable."""
    import uvloop

    from tidings.live.broker._node import BrokerNode

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, facts: _log_trouble(log, facts))
        node = BrokerNode(network, name, log, on_serving=on_serving)

        def stop() -> None:
            assert ends_with is not None
            loop.remove_reader(ends_with)
            node.stop()

        if ends_with is not None:
            loop.add_reader(ends_with, stop)
        await node.run()

    with contextlib.suppress(OSError):  # what `ps` and `top` show, where there is such a file
        Path("/proc/self/comm").write_text(f"tidings {name}", "utf-8")
    # Machines free what they hold without the collector's help, and a full collection would stop them for tens of
    # milliseconds: so it is rare.
    gc.set_threshold(*COLLECTION)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # until the broker listens and handles it
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def serve_child(path: str, name: str, log: str) -> None:
    """Run one broker in a process of its own, until it stops or its supervisor is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    with Path(log).open("a", encoding="utf-8") as stream:
        serve(read_network(Path(path)), name, Log(name, stream=stream), ends_with=parent.sentinel)


def _log_trouble(log: Log, facts: dict[str, object]) -> None:
    error = facts.get("exception")
    log.warning("trouble", what=str(facts.get("message", "")), why=f"{type(error).__name__}: {error}")


def _child(path: str, name: str, reports: Connection, is_text: bool) -> None:
    log = Log(name, is_text=is_text)
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None
    try:
        network = read_network(Path(path))
        serve(network, name, log, ends_with=supervisor.sentinel, on_serving=lambda: reports.send(SERVING))
    except TidingsError as error:
        if not log.is_text:  # the supervisor shows the reason, once
            log.error("failed", why=str(error))
        reports.send(str(error))
        sys.stderr.flush()
        os._exit(error.exit_code)


def _probe() -> None:
    """Started to see whether the fork server is ready."""


class _Child:
    """One broker's process, and how often it was started."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: ForkServerProcess | None = None
        self.reports: Connection  # SERVING, then the reason why the process ends, if it knows one
        self.failure = ""
        self.is_serving = False
        self.starts = 0
        self.began_s = 0.0
        self.due_s = 0.0
        self.wait_s = 0.0
        self.leaves_by_s: float | None = None
        """When a broker that is no longer in the file must be gone."""

    def read_reports(self) -> None:
        """Take in what the process has reported, if one was started."""
        if self.starts == 0:
            return
        try:
            while self.reports.poll():
                report = self.reports.recv()
                self.is_serving = self.is_serving or report == SERVING
                self.failure = report
        except EOFError:
            pass


class Supervisor:
    """All brokers of a network on this machine."""

    def __init__(self, network: Network, log: Log) -> None:
        self._network = network
        self._log = log
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tidings.live.broker._preload", "uvloop"])
        self._children = {name: _Child(name) for name in network.brokers}
        self._supervision = Supervision(pid=os.getpid())
        self._stopping = self._reloading = False
        self._starting = set(self._children)  # not yet serving since the network was started
        self._had_terminal = os.isatty(0)
        self._began_s = time.monotonic()
        self._is_ready = self._is_slow = False

    def run(self) -> None:
        """Start all brokers and keep them running until a signal stops them; TidingsError if one cannot start."""
        handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop, signal.SIGHUP: self._hung_up}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        self._log.info("starting", brokers=len(self._children), file=str(self._network.path))
        self._write_state()
        try:
            self._start_server()
            self._await_server()
            while not self._stopping:
                if self._reloading:
                    self._reload()
                for child in list(self._children.values()):
                    if child.leaves_by_s is None:
                        self._look_after(child)
                    else:
                        self._see_off(child, child.leaves_by_s)
                self._report_start()
                time.sleep(_POLL_S)
        finally:
            self._end()
            self._supervision.erase(self._network)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _report_start(self) -> None:
        """Report once that all brokers serve, and before that, once, that it takes long."""
        if self._is_ready:
            return
        if all(child.is_serving for child in self._children.values()):
            self._is_ready = True
            links = sum(len(others) for others in self._network.links.values()) // 2
            self._log.info("ready", brokers=len(self._children), links=links)
        elif not self._is_slow and time.monotonic() > self._began_s + SLOW_START_S:
            self._is_slow = True
            self._log.info("still starting", why="the first start compiles kernels, which takes about half a minute")

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._stopping = True

    def _hung_up(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Sent after the file has changed, or because the terminal is gone."""
        if self._had_terminal and not os.isatty(0):
            self._stopping = True
        else:
            self._reloading = True

    def _reload(self) -> None:
        self._reloading = False
        self._supervision.reloads += 1
        try:
            after = read_network(self._network.path)
            change = change_of(self._network, after)
        except TidingsError as error:
            self._log.error("reload refused", why=str(error))
            self._supervision.refused = str(error)
            self._write_state()
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
        self._supervision.refused, self._supervision.change = None, str(change)
        self._write_state()

    def _write_state(self) -> None:
        """Brokers keep running even if their state cannot be published."""
        self._supervision.brokers = [*self._children]
        try:
            self._supervision.write(self._network)
        except OSError as error:
            self._log.warning("no reload", why=f"{supervision_file(self._network)}: {error.strerror or error}")

    def _see_off(self, child: _Child, leaves_by_s: float) -> None:
        """Watch a broker that is no longer in the file until it is gone."""
        process = child.process
        if process is not None and process.exitcode is None:
            if time.monotonic() > leaves_by_s:
                self._log.error("broker killed", broker=child.name, pid=process.pid, why="it did not stop in time")
                process.kill()
            return
        del self._children[child.name]
        self._log.info("broker left", broker=child.name)
        self._write_state()

    def _start_server(self) -> None:
        """Start the process that children are forked from, with SIGINT blocked in it and so in all of them."""
        resource_tracker.ensure_running()  # first: it would unblock the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def _await_server(self) -> None:
        """Wait until that process has loaded everything. If a signal comes first, it ends by itself, after this one."""
        probe = self._context.Process(target=_probe, name="tidings probe")
        waiting = threading.Thread(target=probe.start, name="tidings fork server", daemon=True)  # blocks until then
        waiting.start()
        while waiting.is_alive() and not self._stopping:
            self._report_start()
            time.sleep(_POLL_S)
        if not waiting.is_alive():
            probe.join()

    def _look_after(self, child: _Child) -> None:
        now_s = time.monotonic()
        process = child.process
        lived_s = now_s - child.began_s
        child.read_reports()
        if process is not None and process.exitcode is not None:
            child.process = None
            if process.exitcode > 0 and child.name in self._starting:
                why = child.failure or f"exit code {process.exitcode}"
                raise TidingsError(f"{self._network.path}: the network was not started: {why}")
            child.wait_s = 0.0 if lived_s > STEADY_S else min(max(2 * child.wait_s, 0.1), RESTART_MOST_S)
            if child.starts == 1 and process.exitcode < 0:
                child.wait_s = 0.0
            child.due_s = now_s + child.wait_s
            why = child.failure or f"exit code {process.exitcode}"
            self._log.warning(
                "broker died", broker=child.name, exit_code=process.exitcode, again_in_s=child.wait_s, why=why
            )
        elif process is not None and lived_s > STEADY_S:
            self._starting.discard(child.name)
        if child.process is None and now_s >= child.due_s:
            child.reports, sender = self._context.Pipe(duplex=False)
            child.process = self._context.Process(
                target=_child,
                args=(str(self._network.path), child.name, sender, self._log.is_text),
                name=f"tidings {child.name}",
            )
            child.process.start()
            sender.close()
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
                self._log.error("broker killed", pid=process.pid, why="it did not stop in time")
                process.kill()
                process.join()
        self._log.info("all brokers stopped")
