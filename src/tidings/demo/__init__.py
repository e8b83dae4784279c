"""The demonstration: one scenario from end to end, as a story with figures."""

from tidings.demo._compilation import compiling
from tidings.demo._run import STEPS, run_demo
from tidings.demo._story import next_commands, print_demo
from tidings.demo._values import Demonstration, Effect, OrderEffect, Standing

__all__ = [
    "STEPS",
    "Demonstration",
    "Effect",
    "OrderEffect",
    "Standing",
    "compiling",
    "next_commands",
    "print_demo",
    "run_demo",
]
