"""Read-only arrays: what routing values hold and what its compiled kernels take.

Arrays inside frozen values must not change under their reader. Numba compiles a kernel again for writable arrays, so
every array that enters a kernel from outside goes through `frozen` as well: one kernel, one compilation.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def frozen(values: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """A contiguous read-only array of these values; the caller's own array keeps its flags."""
    array = np.ascontiguousarray(values, dtype=dtype).view()
    array.flags.writeable = False
    return array


def frozen_copy(values: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """As `frozen`, and independent of the caller's array: for values that outlive the call."""
    return frozen(np.array(values, dtype=dtype), dtype)
