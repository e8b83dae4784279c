"""One way to compile a kernel: Numba, cached on disk, without the interpreter's lock.

Kernels are free functions over arrays (docs/decisions/0003-compiled-kernels.md). This module is the only one that
names the compiler's options; it is imported by the rooms that have kernels, never by ``import tidings``.
"""

from collections.abc import Callable
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
