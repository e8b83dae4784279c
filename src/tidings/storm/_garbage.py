"""Fewer collections of cyclic garbage while a storm lasts.

A storm makes objects by the hundred thousand and hardly a cycle among them. Left alone, the collector looks through
all of them, and through every imported module, again and again: a fifth of the whole time. So it looks seldom; what
is cyclic after all is still found, and memory stays bounded.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["seldom_collected"]

_OBJECTS: Final = 500_000
"""So many more objects than at the last collection, and there is another one."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect seldom in this block."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
