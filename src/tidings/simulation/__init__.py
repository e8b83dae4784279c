"""Simulation: a network and a seed in, what happens to every event out (docs/reference/simulation.md)."""

from tidings.simulation._options import Kinds, Options
from tidings.simulation._result import FaultFigures, OrderingFigures, RelocationFigures, Result, SubscriberResult
from tidings.simulation._run import simulate
from tidings.simulation._script import Script, ScriptedEvent, simulate_script

__all__ = [
    "FaultFigures",
    "Kinds",
    "Options",
    "OrderingFigures",
    "RelocationFigures",
    "Result",
    "Script",
    "ScriptedEvent",
    "SubscriberResult",
    "simulate",
    "simulate_script",
]
