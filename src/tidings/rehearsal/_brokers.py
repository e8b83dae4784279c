"""The brokers of a rehearsal: processes of their own, each with a network file in which its neighbours are doors.

Processes are forked from a server that has loaded everything already, as those of `tidings up` are: one that was killed
serves again within moments.
"""

import multiprocessing
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, Final

from tidings.errors import TidingsError
from tidings.live.broker import serve_child

__all__ = ["BrokerProcesses", "network_text"]

_LEAVE_S: Final = 5.0


def network_text(
    sections: Mapping[str, Mapping[str, Any]],
    ports: Mapping[str, int],
    doors: Mapping[str, int],
    links: Mapping[str, frozenset[str]],
) -> str:
    """A network file: where brokers listen, where they are reached (`doors`, for one of them), and their links."""
    import msgspec

    def written(value: Any) -> str:
        return msgspec.json.encode(value).decode()

    lines: list[str] = []
    for name, section in sections.items():
        lines += [f"[{name}]", *(f"{key} = {written(value)}" for key, value in section.items())]
    for name, port in ports.items():
        lines += [
            "[[broker]]",
            f"name = {written(name)}",
            f'listen = "127.0.0.1:{port}"',
            f'address = "127.0.0.1:{doors.get(name, port)}"',
            f"neighbours = {written(sorted(links[name]))}",
        ]
    return "\n".join(lines) + "\n"


class BrokerProcesses:
    """One process for each broker; `files` are their network files."""

    def __init__(self, files: Mapping[str, Path], log: Path) -> None:
        self._files = files
        self._log = log
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tidings.live.broker._preload", "uvloop"])
        self._running: dict[str, ForkServerProcess] = {}

    def start(self, name: str) -> None:
        """Let a broker run, with what it has on disk."""
        process = self._context.Process(
            target=serve_child, args=(str(self._files[name]), name, str(self._log)), name=f"tidings {name}"
        )
        process.start()
        self._running[name] = process

    def kill(self, name: str) -> None:
        """Power off: the process says nothing more to anybody."""
        process = self._running.pop(name)
        process.kill()
        process.join()

    def check(self) -> None:
        """TidingsError, with the reason that its log gives, if a broker has ended by itself."""
        for name, process in self._running.items():
            if process.exitcode is not None:
                lines = self._log.read_text("utf-8").splitlines() if self._log.exists() else []
                errors = [line for line in lines if '"level":"error"' in line and f'"who":"{name}"' in line]
                raise TidingsError(
                    f"broker {name!r} has stopped (exit code {process.exitcode}): {(errors or ['?'])[-1]}"
                )

    def end(self) -> None:
        """Let all of them finish their traces and leave."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.join(_LEAVE_S)
            if process.exitcode is None:
                process.kill()
                process.join()
        self._running.clear()
