"""One way to compile a kernel: Numba, cached on disk, without the interpreter's lock.

Kernels are free functions over arrays (docs/decisions/0003-compiled-kernels.md). This module is the only one that
names the compiler's options; it is imported by the rooms that have kernels, never by ``import tidings``.

The compiler renews a kernel on disk when the file it is written in changes, but not when a constant or an inner
function that it took from another file does. A kernel that is older than any source that its file imports, directly or
not, is therefore forgotten here, before it can be used. Imports are found by their text, which takes milliseconds.

Two families. `compiled` and `compiled_inline` may allocate, so they count who holds an array: an atomic addition for
each array of each call. The *borrowing* kernels allocate nothing and return no array, and whoever calls the outermost
holds all arrays until it comes back; counting would protect nothing, and takes half of the time of a loop of many small
steps. One that allocates does not compile, so the premise is checked. Without references a call costs little, so steps
stay functions of their own: each is analysed once, which is what compilation spends its time on.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba

__all__ = ["borrowing", "borrowing_inner", "borrowing_step", "compiled", "compiled_inline"]

Kernel = TypeVar("Kernel", bound=Callable[..., object])

_IMPORT: Final = re.compile(r"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)


def _compile(function: Kernel, **more: bool | str) -> Kernel:
    compiler: Any = numba.njit  # its published types leave out some of its options
    return cast(Kernel, compiler(cache=True, nogil=True, error_model="numpy", **more)(function))


def compiled(function: Kernel) -> Kernel:
    """Compile `function` on its first call for the types it is called with; the type checker sees it unchanged."""
    return _compile(function)


def compiled_inline(function: Kernel) -> Kernel:
    """As `compiled`, for an inner function of a hot loop: its body is put in the place of each call.

    A call, even one that the machine-code optimiser merges later, counts the references of the arrays it passes, which
    costs more than a short body does.
    """
    return _compile(function, inline="always")


def borrowing(function: Kernel) -> Kernel:
    """Compile `function`, which must not allocate, for calls from other borrowing kernels and from Python."""
    return _compile(function, _nrt=False)


def borrowing_inner(function: Kernel) -> Kernel:
    """As `borrowing`, for calls from other kernels only: what Python would call is not made."""
    return _compile(function, _nrt=False, no_cpython_wrapper=True)


def borrowing_step(function: Kernel) -> Kernel:
    """As `borrowing_inner`, for a short function of a hot loop: its machine code is put in the place of each call."""
    return _compile(function, _nrt=False, no_cpython_wrapper=True, forceinline=True)


def _forget_stale_kernels(package: Path) -> None:
    """Delete the index of every compiled kernel that is older than a source it may be made of."""

    @cache
    def imported(source: Path) -> frozenset[Path]:
        return frozenset(_imported(source, package))

    @cache
    def newest_below(source: Path) -> float:
        seen, waiting = {source}, [source]
        while waiting:
            found = imported(waiting.pop()) - seen
            seen |= found
            waiting += found
        return max(path.stat().st_mtime for path in seen)

    for kernel in package.rglob("__pycache__/*.nbi"):
        source = kernel.parent.parent / f"{kernel.name.partition('.')[0]}.py"
        if not source.exists() or kernel.stat().st_mtime < newest_below(source):
            kernel.unlink(missing_ok=True)


def _imported(source: Path, package: Path) -> Iterator[Path]:
    """The files of the package that a source imports; of a package inside it, all files, whoever of them it asks."""
    for name in _IMPORT.findall(source.read_text("utf-8")):
        top, *inner = name.split(".")
        if top == package.name:
            place = package.joinpath(*inner)
            if inner and place.is_dir():
                yield from place.rglob("*.py")
            elif inner:
                yield place.with_suffix(".py")


with suppress(OSError):  # an installation that may not be written to has nothing stale either
    _forget_stale_kernels(Path(__file__).parent)
