"""The autopilot keeps a live network at its objective by changes that it may make, and takes back what did not help.

`Autopilot` decides, without I/O and with the time as argument; `fly` drives it over a live network. What it does, what
it may touch and how it is stopped is in docs/guide/autopilot.md. Names load on first use.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.autopilot._audit import AuditLog, Memory, Record, read_records
    from tidings.autopilot._live import Files, fly, stop_flight
    from tidings.autopilot._machine import (
        Apply,
        AskPlan,
        Autopilot,
        AutopilotSettings,
        Effect,
        Note,
        Revert,
        State,
    )
    from tidings.autopilot._measure import Account, Measure, Observation, measure
    from tidings.autopilot._profiles import Profiles, TraceProfiles, WindowProfiles, source_of
    from tidings.autopilot._proposal import Proposal, Step, propose

__all__ = [
    "Account",
    "Apply",
    "AskPlan",
    "AuditLog",
    "Autopilot",
    "AutopilotSettings",
    "Effect",
    "Files",
    "Measure",
    "Memory",
    "Note",
    "Observation",
    "Profiles",
    "Proposal",
    "Record",
    "Revert",
    "State",
    "Step",
    "TraceProfiles",
    "WindowProfiles",
    "fly",
    "measure",
    "propose",
    "read_records",
    "source_of",
    "stop_flight",
]

__getattr__, __dir__ = lazily(__name__)
