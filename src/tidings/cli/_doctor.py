"""`tidings doctor`: whether an installation is complete, one line for each check, with the remedy.

A check is `ok`, a `note` (something optional is missing) or a `problem`. Only a problem makes the command fail.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import typer

from tidings.cli._output import Json, print_json, reporting

__all__ = ["EPILOG", "Check", "checks", "doctor"]

EPILOG = "Try:\n\ntidings doctor\n\ntidings doctor --compile"
LEAST_PYTHON: Final = (3, 11)
LEAST_JAVA: Final = 17
LEAST_FREE_BYTES: Final = 1_000_000_000
LEAST_OPEN_FILES: Final = 4_096
"""A broker has a file for each client."""
BUILT_IN: Final = 2026
"""A clock that shows an earlier year is wrong."""
JAVA_PATIENCE_S: Final = 30.0


class Check(NamedTuple):
    """What one check found."""

    name: str
    state: Literal["ok", "note", "problem"]
    found: str
    remedy: str = ""


def doctor(
    compile_kernels: Annotated[
        bool, typer.Option("--compile", help="Compile all kernels now, which takes some minutes once.")
    ] = False,
    json: Json = False,
) -> None:
    """Check this installation: Python, extras, Java, kernels, disk, limits, clock.

    Each line has a remedy where something is missing. Exits with 1 if there
    is a problem; a missing extra is only a note.
    """
    with reporting(json=json):
        if compile_kernels:
            _compile()
        found = list(checks())
        if json:
            print_json({"checks": [each._asdict() for each in found]})
        else:
            for each in found:
                remedy = f" ({each.remedy})" if each.remedy else ""
                typer.echo(f"{each.state:<8} {each.name}: {each.found}{remedy}")
        if any(each.state == "problem" for each in found):
            raise typer.Exit(1)


def checks() -> Iterator[Check]:
    """All checks, in the order in which they are shown."""
    yield _python()
    yield _tidings()
    yield from _extras()
    yield _java()
    yield _kernels()
    yield _disk()
    yield _open_files()
    yield _clock()


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < LEAST_PYTHON:
        return Check("Python", "problem", version, "install Python 3.11 or later")
    return Check("Python", "ok", version)


def _tidings() -> Check:
    import tidings

    return Check("Tidings", "ok", f"{tidings.__version__} in {Path(tidings.__file__).parent}")


def _extras() -> Iterator[Check]:
    from tidings.extras import EXTRAS, install_line

    for extra, packages in EXTRAS.items():
        missing = [name for name in packages if find_spec(name) is None]
        if missing:
            yield Check(f"tidings[{extra}]", "note", f"missing: {', '.join(missing)}", install_line(extra))
        else:
            yield Check(f"tidings[{extra}]", "ok", "installed")


def _java() -> Check:
    home = os.environ.get("JAVA_HOME")  # Spark looks there first
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if home and java is None:
        return Check("Java", "problem", f"JAVA_HOME is {home}, without bin/java", "unset JAVA_HOME, or correct it")
    if java is None:
        return Check("Java", "note", "not found; only Spark needs it", "install Java 17 or later")
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("Java", "problem", f"{java} does not run: {error}", "install Java 17 or later")
    version = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    if version is None:
        return Check("Java", "problem", f"{java} does not report its version", "install Java 17 or later")
    if int(version[1]) < LEAST_JAVA:
        return Check("Java", "problem", f"version {version[1]}, too old for Spark", "install Java 17 or later")
    return Check("Java", "ok", f"version {version[1]}")


def _kernels() -> Check:
    if find_spec("numba") is None:
        return Check("kernels", "note", "Numba is not installed; a client without an order needs none")
    from tidings.compiled import compiled_kernels

    count = compiled_kernels()
    if count == 0:
        remedy = "tidings doctor --compile, or wait for some minutes at the first use"
        return Check("kernels", "note", "not compiled yet", remedy)
    return Check("kernels", "ok", f"{count} compiled")


def _disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    found = f"{free / 1e9:.1f} GB free in this directory"
    if free < LEAST_FREE_BYTES:
        return Check("disk", "problem", found, "free at least 1 GB, or work in another directory")
    return Check("disk", "ok", found)


def _open_files() -> Check:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return Check("open files", "ok", "no limit on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_OPEN_FILES:
        wanted = 65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard)
        return Check("open files", "note", f"{soft:,}: a broker has one for each client", f"ulimit -n {wanted}")
    return Check("open files", "ok", "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}")


def _clock() -> Check:
    """Clocks need not agree between machines, but a wrong year breaks certificates, and a coarse clock all ages."""
    now = time.gmtime()
    if now.tm_year < BUILT_IN:
        return Check("clock", "problem", time.strftime("%Y-%m-%d", now), "set the clock; certificates depend on it")
    step_ns = time.get_clock_info("monotonic").resolution * 1e9
    return Check("clock", "ok", f"{time.strftime('%Y-%m-%d %H:%M:%S', now)} UTC, steps of {step_ns:,.0f} ns")


def _compile() -> None:
    """Call everything once that has kernels, as far as the extras are installed."""
    parts: list[tuple[str, Callable[[], None]]] = [("broker", _compile_broker)]
    if find_spec("networkx") is not None:
        parts.append(("simulation and prediction", _compile_laboratory))
    for name, part in parts:
        typer.echo(f"compiling: {name}", err=True)
        part()


def _compile_broker() -> None:
    from tidings.live.broker import warm_up
    from tidings.protocol import BrokerSettings

    warm_up(BrokerSettings(name="kernels"))


def _compile_laboratory() -> None:
    from tidings.demo import compiling

    with compiling():
        pass
