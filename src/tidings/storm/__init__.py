"""The storm: the real protocol in virtual time, under random faults, with its guarantees checked.

`run_storm(StormSettings(), seed)` runs one; the same seed gives the same storm, byte for byte. docs/reference/storm.md
lists the faults and the guarantees. `StormNetwork` is the virtual network alone, for experiments on the real protocol.
"""

from tidings.storm._dice import Dice
from tidings.storm._history import History
from tidings.storm._invariants import CHECKS
from tidings.storm._kinds import KINDS
from tidings.storm._many import StormReport, as_document, run_storms
from tidings.storm._network import Process, StormNetwork
from tidings.storm._play import (
    PlayedSubscription,
    PlayResult,
    access_links,
    drawing,
    payload_of,
    play,
    play_script,
    require_playable,
)
from tidings.storm._run import Storm, StormResult, run_storm
from tidings.storm._settings import StormSettings
from tidings.storm._trace import write_trace

__all__ = [
    "CHECKS",
    "KINDS",
    "Dice",
    "History",
    "PlayResult",
    "PlayedSubscription",
    "Process",
    "Storm",
    "StormNetwork",
    "StormReport",
    "StormResult",
    "StormSettings",
    "access_links",
    "as_document",
    "drawing",
    "payload_of",
    "play",
    "play_script",
    "require_playable",
    "run_storm",
    "run_storms",
    "write_trace",
]
