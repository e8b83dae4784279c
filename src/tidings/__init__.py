"""Tidings: content-based publish/subscribe that arrives on time.

The rooms of the house, from the bottom up (imports point up this list):

- ``tidings.model``       the vocabulary: events, filters, subscriptions, topologies, scenarios, traces
- ``tidings.matching``    which subscriptions does this event satisfy?
- ``tidings.routing``     which neighbours must it be sent to, and along which paths?
- ``tidings.scheduling``  what does a link send next?
- ``tidings.simulation``  all of it in virtual time
- ``tidings.experiments`` the papers' evaluations, run again
- ``tidings.report``      tables and pictures
- ``tidings.cli``         the ``tidings`` command

Importing this package is cheap: heavy libraries load when the part that needs them is imported.
"""

from tidings.errors import (
    ConfigurationError,
    EventError,
    FilterError,
    InputError,
    ScenarioError,
    TidingsError,
)

__all__ = [
    "ConfigurationError",
    "EventError",
    "FilterError",
    "InputError",
    "ScenarioError",
    "TidingsError",
    "__version__",
]

__version__ = "0.1.0"
