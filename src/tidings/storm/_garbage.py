"""Fewer collections of cyclic garbage during a storm.

A storm makes hundreds of thousands of objects with hardly a cycle among them. By default the collector would examine
all of them, and every imported module, again and again: a fifth of the whole time. So it runs rarely; cycles are still
found, and memory stays bounded.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["seldom_collected"]

_OBJECTS: Final = 500_000
"""How many more objects than after the last collection trigger the next one."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect rarely in this block."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
