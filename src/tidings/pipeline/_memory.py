"""How much memory this process may use: what the machine has free, or less where a control group says so.

A container sees the whole machine's memory in /proc, but is killed at the limit of its control group or of any group
around that. So the answer is the least of what the machine has available and what each group has left.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["available_memory_bytes", "driver_memory"]

DRIVER_SHARE = 0.5  # the rest is for the Python workers, the files' cache and everybody else
DRIVER_LEAST_BYTES = 1 << 30
DRIVER_MOST_BYTES = 30 << 30  # beyond this the JVM's pointers grow, and the same data takes half as much again


def driver_memory(available_bytes: int) -> str:
    """The heap of a local driver on a machine with so much memory available, as Spark writes it (`8192m`)."""
    share = int(available_bytes * DRIVER_SHARE)
    return f"{max(DRIVER_LEAST_BYTES, min(share, DRIVER_MOST_BYTES)) >> 20}m"


def available_memory_bytes(*, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """What can still be allocated without swapping and without reaching the limit of a control group."""
    return min([_machine_bytes(proc), *_left_in_groups(proc, groups)])


def _machine_bytes(proc: Path) -> int:
    with suppress(OSError):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # where there is no /proc: all that is built in


def _left_in_groups(proc: Path, groups: Path) -> Iterator[int]:
    """What is left in this process's memory group and in every group around it, of both versions of the interface."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield from _left(groups, path, limit="memory.max", used="memory.current")
        elif "memory" in controllers.split(","):
            yield from _left(groups / "memory", path, limit="memory.limit_in_bytes", used="memory.usage_in_bytes")


def _left(root: Path, path: str, *, limit: str, used: str) -> Iterator[int]:
    here = root / path.lstrip("/")
    for group in (here, *here.parents):
        if not group.is_relative_to(root):
            break
        with suppress(OSError, ValueError):  # the root has no limit; "max" is not a number, and is none either
            yield max(0, int((group / limit).read_text()) - int((group / used).read_text()))
