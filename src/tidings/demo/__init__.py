"""The demonstration: one scenario from end to end, for a first look at what Tidings does."""

from tidings.demo._run import STEPS, run_demo
from tidings.demo._tables import print_demo
from tidings.demo._values import Demonstration, Effect, OrderEffect, Standing

__all__ = ["STEPS", "Demonstration", "Effect", "OrderEffect", "Standing", "print_demo", "run_demo"]
