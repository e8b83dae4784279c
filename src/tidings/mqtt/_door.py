"""The door of a broker: a gateway beside the node that it serves, in one process, without I/O.

A pipe is a connection of the node whose other end is the gateway. A driver carries out the effects of the gateway as
`routed` gives them: what concerns a pipe is an effect on the node. It reports what the node writes to pipes and which
it closes (`written`, `shut`), and calls `turn` soon afterwards, when the turn of the node is over.

- All that the node writes in one turn is looked at together, so that what goes to many clients is encoded once.
- What a pipe has carried is looked at before its end.
- Neither end is called while it is in a call itself.

`tidings.live` and `tidings.storm` drive the same door.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tidings.mqtt._gateway import Gateway, GatewayEffect, Pipe
from tidings.protocol.node import Shut, Write

__all__ = ["Door", "DoorEffect", "Hand", "Sever"]


class Hand(msgspec.Struct, frozen=True, gc=False):
    """Hand these frames to the node, over a pipe."""

    pipe: str
    frames: list[Any]


class Sever(msgspec.Struct, frozen=True, gc=False):
    """Report to the node that a pipe has ended."""

    pipe: str
    reason: str


DoorEffect = GatewayEffect | Hand | Sever


class Door:
    """The pipes between a gateway and a node."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._pipes: set[str] = set()
        self._came: dict[str, list[Any]] = {}
        self._ended: list[tuple[str, str, bool]] = []

    @property
    def is_stirred(self) -> bool:
        """Whether a turn has something to do."""
        return bool(self._came or self._ended)

    def written(self, pipe: str, frames: Sequence[Any]) -> None:
        """The node has written to a pipe."""
        if pipe in self._pipes:
            self._came.setdefault(pipe, []).extend(frames)

    def shut(self, pipe: str, reason: str) -> None:
        """The node closes a pipe."""
        if pipe in self._pipes:
            self._pipes.remove(pipe)
            self._ended.append((pipe, reason, True))

    def turn(self, now_ns: int) -> list[DoorEffect]:
        """Look at what the node has written and closed."""
        came, self._came = self._came, {}
        effects = self.routed(self.gateway.piped(came, now_ns)) if came else []
        ended, self._ended = self._ended, []
        for pipe, reason, is_by_node in ended:
            if is_by_node:
                effects += self.routed(self.gateway.pipe_lost(pipe, reason, now_ns))
            effects.append(Sever(pipe, reason))
        return effects

    def routed(self, effects: Iterable[GatewayEffect]) -> list[DoorEffect]:
        """Effects of the gateway, for sockets, store, timer and log or for the node."""
        found: list[DoorEffect] = []
        pipes = self._pipes
        for effect in effects:
            if type(effect) is Write:
                name = effect.connection
                found.append(Hand(name, effect.parts) if name in pipes else effect)
            elif type(effect) is Shut and effect.connection in pipes:
                pipes.remove(effect.connection)
                self._ended.append((effect.connection, effect.reason, False))
            else:
                if type(effect) is Pipe:
                    pipes.add(effect.name)
                found.append(effect)
        return found
