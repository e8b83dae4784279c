"""What the live benchmarks share: broker processes on free ports, and links of a fixed capacity between processes.

A link of a fixed capacity is a process that forwards a connection's bytes, in both directions, at so many bytes per
second and no faster. It keeps almost nothing itself: it reads in pieces of PIECE_BYTES and its receive buffers are as
small as the kernel allows, so what does not fit through stays with the sender, as with a modem at the end of a line. A
process that the machine has kept waiting may catch up with what the link would have carried in `spare_s`.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidings.rehearsal._ports import free_ports

__all__ = ["Link", "broker_process", "brokers", "free_ports", "processor_s", "shaped"]

PIECE_BYTES = 512
RECEIVE_BYTES = 2_048
SEGMENT_BYTES = 1_400
SPARE_S = 0.02
_BROKER = "import sys; sys.argv[0] = 'tidings'; from tidings.cli import main; main()"
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def processor_s(*pids: int) -> float:
    """The processor time that these processes have taken so far."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) * _TICK_S


@contextlib.contextmanager
def brokers(
    text: str, ports: Mapping[str, int], directory: Path | None = None
) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """A process for each broker of a network file, in this directory or one of its own; all end with the context."""
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-")))
        path = directory / "network.toml"
        path.write_text(text, "utf-8")
        processes = {name: stack.enter_context(_ending(broker_process(path, name))) for name in ports}
        for name, port in ports.items():
            _wait_for(port, processes[name], f"broker {name}")
        try:
            yield processes
        finally:
            for process in processes.values():  # all drain at the same time
                process.send_signal(signal.SIGTERM)


class Link:
    """A link of fixed capacity; `port` is where it begins."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.port = port
        self._process = process
        if self._said() != "ready":
            raise RuntimeError("the shaped link does not come up")

    def carried_bytes(self) -> int:
        """How much it has carried, in the direction in which that was more."""
        self._process.send_signal(signal.SIGUSR1)
        return int(self._said())

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It carries nothing meanwhile."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()


@contextlib.contextmanager
def shaped(target: int, *, bytes_per_s: float, spare_s: float = SPARE_S) -> Iterator[Link]:
    """A link of this capacity to a port of this machine."""
    (port,) = free_ports(1)
    arguments = [sys.executable, "-m", "benchmarks.live_load", str(port), str(target), str(bytes_per_s), str(spare_s)]
    with _ending(_process(arguments)) as process:
        yield Link(port, process)


def broker_process(path: Path, name: str) -> "subprocess.Popen[bytes]":
    """A process that runs one broker of a network file."""
    return _process([sys.executable, "-c", _BROKER, "broker", str(path), "--name", name])


def _process(arguments: list[str]) -> "subprocess.Popen[bytes]":
    root = Path(__file__).resolve().parent.parent
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root)


@contextlib.contextmanager
def _ending(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """The process, which ends with the context."""
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _wait_for(port: int, process: "subprocess.Popen[bytes]", what: str) -> None:
    until_s = time.monotonic() + 120.0
    while time.monotonic() < until_s and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{what} does not come up")


def _serve(listen: int, target: int, bytes_per_s: float, spare_s: float) -> None:
    carried = [0, 0]  # to the target, and from it
    signal.signal(signal.SIGUSR1, lambda *_: print(max(carried), flush=True))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _make_small(listener)
        listener.bind(("127.0.0.1", listen))
        listener.listen()
        print("ready", flush=True)
        while True:
            near, _ = listener.accept()
            far = socket.socket()
            _make_small(far)
            try:
                far.connect(("127.0.0.1", target))
            except OSError:
                near.close()
                far.close()
                continue
            for direction, ends in enumerate(((near, far), (far, near))):
                threading.Thread(
                    target=_forward, args=(*ends, bytes_per_s, spare_s, carried, direction), daemon=True
                ).start()


def _make_small(end: socket.socket) -> None:
    """Before it is connected, so that the other end learns of a small window."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _forward(
    source: socket.socket, sink: socket.socket, bytes_per_s: float, spare_s: float, carried: list[int], direction: int
) -> None:
    free_s = time.monotonic()
    with contextlib.suppress(OSError):
        while data := source.recv(PIECE_BYTES):
            now_s = time.monotonic()
            free_s = max(free_s, now_s - spare_s) + len(data) / bytes_per_s
            if free_s > now_s:
                time.sleep(free_s - now_s)
            sink.sendall(data)
            carried[direction] += len(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
