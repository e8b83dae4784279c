"""What a run counted, and what follows from it for the next run.

Rules:

- Nothing new: the last answer stands, and nothing is computed.
- New files: their units are computed again, from these files and from what earlier files hold of the same units.
- A change of what everything depends on (subscriptions, brokers, options, a counted file, the version): everything is
  computed again, and the result says why.
- A counted file that is gone (retention): the rows of its units may be in other files as well, so the files that are
  left are computed again, and the result says so. Small tables and unreadable files are read by every run anyway.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tidings.errors import InputError
from tidings.pipeline._options import SMALL
from tidings.pipeline.ingest import TraceFile

__all__ = ["FORMAT", "Manifest", "Workload", "gone_files", "workload_of"]

FORMAT: Final = 8
"""Of the partials and the manifest; partials of another one are not used."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a complete run: `options` and `setting` are what everything depends on, as text to compare.

    A watch has its own state in `watch` (streaming/_watch.py) and no `files`.
    """

    format: int
    files: list[TraceFile]
    options: dict[str, str]
    setting: str
    result: dict[str, Any]
    watch: dict[str, Any] | None = None

    @classmethod
    def decode(cls, data: bytes, path: str) -> "Manifest":
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{path}: the record of the last run cannot be read ({error}); run again with --from-scratch"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a run has to read: new files whole, and of old ones the units that the new ones touch.

    `reason` says why everything is computed again, if so (then all files are new).
    """

    new: Sequence[TraceFile]
    old: Sequence[TraceFile]
    reason: str | None = None

    @property
    def is_nothing(self) -> bool:
        return not self.new and self.reason is None


def workload_of(
    last: Manifest | None,
    files: Sequence[TraceFile],
    *,
    options: Mapping[str, str],
    setting: str,
    is_whole: bool = False,
) -> Workload:
    """What is to be done about these files, after the last run, if there was one.

    `is_whole` says that files count only all together: then a new one changes everything.
    """
    if last is None:
        return Workload(new=files, old=())
    reason = _reason(last, files, options, setting)
    if reason is not None:
        return Workload(new=files, old=(), reason=reason)
    # Nothing was counted of a file that could not be read: when it can, it is new.
    known = {_identity(file) for file in last.files}
    new = [file for file in files if _identity(file) not in known]
    if new and is_whole:
        return Workload(new=files, old=(), reason="the mapping numbers the events of all files together")
    return Workload(new=new, old=[file for file in files if _identity(file) in known])


def _reason(last: Manifest, files: Sequence[TraceFile], options: Mapping[str, str], setting: str) -> str | None:
    if last.format != FORMAT:
        return "the last run was made by another version"
    for name in sorted({*options, *last.options}):
        if options.get(name) != last.options.get(name):
            return f"the option {name} was {last.options.get(name, 'not set')} and is {options.get(name, 'not set')}"
    if setting != last.setting:
        return "subscriptions or brokers have changed"
    gone = gone_files(last.files, files)
    if gone:
        return f"{gone[0].path} was counted and is gone ({len(gone):,} such files)"
    counted = {(file.table, file.path): file for file in last.files if file.fault is None}
    for file in files:
        before = counted.get((file.table, file.path))
        if before is not None and _identity(before) != _identity(file):
            return f"{file.path} has changed since it was counted"
    return None


def gone_files(counted: Sequence[TraceFile], files: Sequence[TraceFile]) -> list[TraceFile]:
    """Files whose rows were counted by unit and that are no longer there."""
    present = {(file.table, file.path) for file in files}
    return [
        file
        for file in counted
        if file.table not in SMALL and file.fault is None and (file.table, file.path) not in present
    ]


def _identity(file: TraceFile) -> tuple[str, str, int, int, str | None]:
    return file.table, file.path, file.size_bytes, file.modified_ns, file.fault
