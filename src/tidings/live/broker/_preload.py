"""Loaded once by the process that broker processes are forked from: everything imported, kernels loaded.

The one module here whose import does something: it is imported for that, by the supervisor's fork server, and by
nobody else.
"""

from tidings.live.broker import _node, _warming
from tidings.live.operations import _metrics
from tidings.protocol import BrokerSettings

__all__: list[str] = []

_LOADED = (_node, _metrics)
"""What a broker uses; the second loads on first use elsewhere, since not every broker has metrics."""
_warming.warm_up(BrokerSettings(name=_node.__name__))
