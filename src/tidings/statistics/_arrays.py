"""Division with NaN for empty denominators, and the array types of this package."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Numbers = npt.ArrayLike


def floats(values: Numbers) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


def ratio(over: Numbers, under: Numbers) -> FloatArray:
    """over / under; NaN where `under` is not above 0."""
    top, bottom = np.broadcast_arrays(floats(over), floats(under))
    return floats(np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0.0))
