"""One way to compile a kernel: Numba, cached on disk, without the interpreter's lock.

Kernels are free functions over arrays (docs/decisions/0003-compiled-kernels.md). This module is the only one that
names the compiler's options; it is imported by the rooms that have kernels, never by ``import tidings``.

The compiler renews a kernel on disk when the file it is written in changes, but not when a constant or an inner
function that it took from another file does. A kernel that is older than any source of the package is therefore
forgotten here, before it can be used.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

import numba

__all__ = ["compiled", "compiled_inline"]

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def compiled(function: Kernel) -> Kernel:
    """Compile `function` on its first call for the types it is called with; the type checker sees it unchanged."""
    return cast(Kernel, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def compiled_inline(function: Kernel) -> Kernel:
    """As `compiled`, for an inner function of a hot loop: its body is put in the place of each call.

    A call, even one that the machine-code optimiser merges later, counts the references of the arrays it passes, which
    costs more than a short body does.
    """
    return cast(Kernel, numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")(function))


def _forget_stale_kernels(package: Path) -> None:
    """Delete the indexes of compiled kernels if one of them is older than the newest source file."""
    kernels = list(package.rglob("__pycache__/*.nbi"))
    if not kernels:
        return
    newest_source = max(path.stat().st_mtime for path in package.rglob("*.py"))
    if min(path.stat().st_mtime for path in kernels) < newest_source:
        for path in kernels:
            path.unlink(missing_ok=True)


with suppress(OSError):  # an installation that may not be written to has nothing stale either
    _forget_stale_kernels(Path(__file__).parent)
