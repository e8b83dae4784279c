"""Random draws in blocks: one number at a time from a generator, at the cost of an iterator."""

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, TypeVar

import numpy as np

__all__ = ["Dice"]

T = TypeVar("T")

_BLOCK: Final = 4_096


class Dice:
    """Uniform draws from a generator, and draws derived from them."""

    __slots__ = ("share",)

    share: Callable[[], float]
    """A number from 0 to below 1."""

    def __init__(self, generator: np.random.Generator) -> None:
        blocks = iter(lambda: generator.random(_BLOCK).tolist(), None)
        self.share = chain.from_iterable(blocks).__next__

    def happens(self, chance: float) -> bool:
        """True with this probability."""
        return self.share() < chance

    def between(self, low: float, high: float) -> float:
        """A number from low to below high."""
        return low + (high - low) * self.share()

    def whole(self, below: int) -> int:
        """A whole number from 0 to below the bound."""
        return min(int(self.share() * below), below - 1)

    def one_of(self, choices: Sequence[T]) -> T:
        """One of them, all equally likely."""
        return choices[self.whole(len(choices))]

    def exponential(self, mean: float) -> float:
        """A waiting time of this mean."""
        return -mean * math.log1p(-self.share())
