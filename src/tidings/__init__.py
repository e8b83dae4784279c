"""Tidings: content-based publish/subscribe that arrives on time.

The packages, from the bottom up (imports point up this list):

- ``tidings.model``       the vocabulary: events, filters, subscriptions, topologies, scenarios, traces
- ``tidings.statistics``  estimates with intervals
- ``tidings.matching``    which subscriptions does this event satisfy?
- ``tidings.routing``     which neighbours must it be sent to, and along which paths?
- ``tidings.scheduling``  what does a link send next?
- ``tidings.ordering``    in which order, and when, does a receiver deliver?
- ``tidings.faults``      what gets through when brokers and links fail?
- ``tidings.prediction``  what will arrive on time?
- ``tidings.placement``   where should a publisher be?
- ``tidings.simulation``  all of it in virtual time, compiled
- ``tidings.planning``    the cheapest change that meets an on-time objective
- ``tidings.protocol``    brokers and clients as nodes without I/O
- ``tidings.mqtt``        MQTT clients as clients of a broker, without I/O
- ``tidings.storm``       the protocol in virtual time, under faults
- ``tidings.live``        the protocol on real sockets and disks: brokers, clients
- ``tidings.rehearsal``   a scenario on real broker processes with shaped links
- ``tidings.pipeline``    Spark: from traces to scores, profiles, replays and predictions
- ``tidings.experiments`` the papers' evaluations, run again
- ``tidings.report``      tables, charts, the HTML page
- ``tidings.demo``        one scenario from end to end
- ``tidings.cli``         the ``tidings`` command

Importing this package is cheap: heavy libraries load when the part that needs them is imported.
"""

from typing import TYPE_CHECKING, Any

from tidings.errors import (
    ConfigurationError,
    ConnectionLostError,
    DeniedError,
    EventError,
    FilterError,
    FilterWarning,
    InputError,
    RequestError,
    ScenarioError,
    TidingsError,
)

__all__ = [
    "ConfigurationError",
    "ConnectionLostError",
    "DeniedError",
    "EventError",
    "FilterError",
    "FilterWarning",
    "InputError",
    "RequestError",
    "ScenarioError",
    "TidingsError",
    "__version__",
    "connect",
    "connect_blocking",
]

__version__ = "0.2.0"

if TYPE_CHECKING:
    from tidings.live import connect, connect_blocking


def __getattr__(name: str) -> Any:
    """The client library loads when it is first asked for."""
    if name in ("connect", "connect_blocking"):
        import tidings.live

        return getattr(tidings.live, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
