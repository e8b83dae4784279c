"""Independent random streams of one seed, one for each part of a scenario.

The stream of a part depends only on the seed and its name, so adding a group of subscribers changes neither the
topology nor the other groups.
"""

from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Streams"]


class Streams:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def stream(self, *part: str | int) -> "np.random.Generator":
        """The generator of this part, at its beginning."""
        import numpy as np

        words = [crc32(step.encode()) if isinstance(step, str) else step for step in part]
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self._seed, *words])))
