"""Imports everything and loads all kernels, once, in the process that broker processes are forked from.

This is the only module here with an effect on import. The supervisor's fork server imports it for that effect; nothing
else does.
"""

from tidings.live.broker import _node, _warmup
from tidings.live.operations import _metrics
from tidings.protocol import BrokerSettings

__all__: list[str] = []

_LOADED = (_node, _metrics)
"""What a broker uses; elsewhere the second loads on first use, since not every broker has metrics."""
_warmup.warm_up(BrokerSettings(name=_node.__name__))
