"""The state of a supervisor, for commands that ask it to reload: a small file beside the brokers' stores.

It holds the supervisor's process, how often it has reloaded its file, why it refused the last time if it did, and which
brokers run. It is written under another name and renamed, so readers see either the whole file or the previous one.
"""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

import msgspec

from tidings.errors import ConfigurationError, TidingsError
from tidings.live.configuration._config import Network

__all__ = ["Supervision", "ask_to_reload", "read_supervision", "supervision_file"]

_FILE: Final = "up.json"
_PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.05


class Supervision(msgspec.Struct, kw_only=True):
    """The present state of a supervisor."""

    pid: int
    reloads: int = 0
    refused: str | None = None
    change: str = ""
    brokers: list[str] = []

    def write(self, network: Network) -> None:
        """Write the file."""
        place = supervision_file(network)
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f"_{_FILE}")
        temporary.write_bytes(msgspec.json.encode(self))
        temporary.replace(place)

    def erase(self, network: Network) -> None:
        """Remove the file, unless another supervisor has written it meanwhile."""
        with contextlib.suppress(OSError, TidingsError):
            if read_supervision(network).pid == self.pid:
                supervision_file(network).unlink()


def supervision_file(network: Network) -> Path:
    """The file of this network's supervisor."""
    return network.path.parent / network.document.network.store / _FILE


def read_supervision(network: Network) -> Supervision:
    """The running supervisor; TidingsError if there is none."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode(supervision_file(network).read_bytes(), type=Supervision)
        os.kill(found.pid, 0)
        return found
    raise TidingsError(
        f"{network.path}: no `tidings up` runs it on this machine; if brokers run separately, send each of them "
        "SIGHUP (systemctl reload)"
    )


def ask_to_reload(network: Network) -> Supervision:
    """Have the supervisor reload its file, and wait until it has; ConfigurationError if it refuses."""
    before = read_supervision(network)
    os.kill(before.pid, signal.SIGHUP)
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        after = read_supervision(network)
        if after.reloads > before.reloads:
            if after.refused is not None:
                raise ConfigurationError(after.refused)
            return after
        time.sleep(_POLL_S)
    raise TidingsError(f"`tidings up` (process {before.pid}) has not answered within {_PATIENCE_S:g} s: see its log")
