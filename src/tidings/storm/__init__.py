"""The storm: the real protocol in virtual time, under every fault that a seed can think of, judged by its promises.

`run_storm(StormSettings(), seed)` runs one; the same seed gives the same storm, byte for byte. docs/reference/storm.md
says what the faults and the promises are. `Network` is the virtual network by itself, for experiments on the real
protocol.
"""

from tidings.storm._dice import Dice
from tidings.storm._history import History
from tidings.storm._invariants import CHECKS
from tidings.storm._kinds import KINDS
from tidings.storm._many import StormReport, as_document, run_storms
from tidings.storm._network import Network, Process
from tidings.storm._play import PlayedSubscription, PlayResult, play
from tidings.storm._run import Storm, StormResult, run_storm
from tidings.storm._settings import StormSettings
from tidings.storm._trace import write_trace

__all__ = [
    "CHECKS",
    "KINDS",
    "Dice",
    "History",
    "Network",
    "PlayResult",
    "PlayedSubscription",
    "Process",
    "Storm",
    "StormReport",
    "StormResult",
    "StormSettings",
    "as_document",
    "play",
    "run_storm",
    "run_storms",
    "write_trace",
]
