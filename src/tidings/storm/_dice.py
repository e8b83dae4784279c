"""Random draws in blocks: a generator's numbers one at a time, at the price of a list."""

import math
from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np

__all__ = ["Dice"]

T = TypeVar("T")

_BLOCK: Final = 4_096


class Dice:
    """Uniform draws from a generator, and what is made of them."""

    __slots__ = ("_block", "_generator", "_place")

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._block: list[float] = []
        self._place = 0

    def share(self) -> float:
        """A number from 0 to below 1."""
        if self._place == len(self._block):
            self._block = self._generator.random(_BLOCK).tolist()
            self._place = 0
        self._place += 1
        return self._block[self._place - 1]

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
        """One of them, each as likely."""
        return choices[self.whole(len(choices))]

    def exponential(self, mean: float) -> float:
        """A waiting time of this mean."""
        return -mean * math.log1p(-self.share())
