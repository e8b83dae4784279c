"""The log of many storms: a line of JSON for each, written when it is over, so that a long run can be resumed.

A line holds the result (`StormResult`), the CPU time, and a mark of the settings: storms with other settings do not
belong in the same file. A line that was cut off when a run was killed is written again.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from tidings.errors import ConfigurationError, InputError
from tidings.storm._run import StormResult
from tidings.storm._settings import StormSettings

__all__ = ["LoggedStorm", "StormLog"]


class LoggedStorm(StormResult, frozen=True, kw_only=True):
    """One line."""

    cpu_s: float
    settings: str


_DECODER = msgspec.json.Decoder(LoggedStorm)


class StormLog:
    """An open log; `known` are the storms that it already held, by seed."""

    def __init__(self, path: Path, settings: StormSettings) -> None:
        self._mark = hashlib.sha256(msgspec.msgpack.encode(settings)).hexdigest()[:16]
        try:
            written = path.read_bytes() if path.exists() else b""
            whole = written[: written.rfind(b"\n") + 1]
            self.known: Mapping[int, LoggedStorm] = self._read(path, whole)
            self._file = path.open("r+b" if path.exists() else "xb")
            self._file.truncate(len(whole))
            self._file.seek(len(whole))
        except OSError as error:
            raise InputError(f"{path} cannot be used as a log of storms: {error.strerror}") from None

    def _read(self, path: Path, lines: bytes) -> dict[int, LoggedStorm]:
        known: dict[int, LoggedStorm] = {}
        for number, line in enumerate(lines.splitlines(), 1):
            try:
                storm = _DECODER.decode(line)
            except msgspec.MsgspecError as error:
                raise InputError(
                    f"{path}, line {number} is not a line of a log of storms ({error}): name another file"
                ) from None
            if storm.settings != self._mark:
                raise ConfigurationError(
                    f"{path}, line {number}: seed {storm.seed} was run with other settings: name another file"
                )
            known[storm.seed] = storm
        return known

    def append(self, result: StormResult, cpu_s: float) -> None:
        """Append a storm."""
        line = LoggedStorm(**msgspec.structs.asdict(result), cpu_s=round(cpu_s, 3), settings=self._mark)
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
