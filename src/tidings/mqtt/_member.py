"""A client of the broker inside the broker's process: a client machine whose connection is a pipe instead of a socket.

Over a pipe frames are handed over one by one, without prefixes; events are handed over as all members get them.

It is admitted like any client: its token, certificate, rules and budgets are those of the MQTT client behind it. Its
messages to the broker can be held until a commit is durable (`gate`): an event must not be acknowledged before the
session that has taken it is on disk.
"""

from collections.abc import Callable
from typing import Any, Protocol

from tidings.protocol import (
    Bundles,
    Client,
    ClientSettings,
    Confirmed,
    Deliver,
    DeliverTogether,
    Failed,
    SetTimer,
    wire,
)
from tidings.protocol.node import (
    Admitted,
    ConnectionLimits,
    Credentials,
    Dial,
    Node,
    NodeEffect,
    Parted,
    Preamble,
    Shut,
    Unreached,
    Write,
)

__all__ = ["Member", "Owner", "Pipes"]

_HOME = "home"


class Owner(Protocol):
    """The owner of a member."""

    def on_admitted(self) -> None:
        """The broker has admitted the member."""

    def on_refused(self, code: str, why: str) -> None:
        """The broker refuses the member, or has revoked its admission."""

    def on_deliver(self, effect: Deliver) -> None:
        """An event has arrived."""

    def on_deliver_together(self, effect: DeliverTogether) -> None:
        """Events have arrived."""

    def on_confirmed(self, kind: str, name: str) -> None:
        """The broker has carried out a request."""

    def on_failed(self, effect: Failed) -> None:
        """The broker has refused a request."""


class Pipes(Protocol):
    """What members need of the gateway."""

    bundles: Bundles
    """The events that members have in common."""

    @property
    def committed(self) -> int:
        """The number of the last commit that is durable."""

    def open_pipe(self, member: "Member", now_ns: int) -> str:
        """Open a pipe to the broker; returns its name."""

    def write_pipe(self, pipe: str, frames: list[bytes]) -> None:
        """Hand frames to the broker."""

    def shut_pipe(self, pipe: str, reason: str) -> None:
        """Close a pipe."""

    def wake_at(self, member: "Member", at_ns: int) -> None:
        """Call `wake` at this time."""

    def hold(self, member: "Member") -> None:
        """Call `release` after the next commit."""


class Member:
    """One client machine with its pipe."""

    def __init__(
        self,
        settings: ClientSettings,
        owner: Owner,
        pipes: Pipes,
        *,
        credentials: Credentials,
        address: str,
        certified: tuple[str, ...],
        chance: Callable[[], float],
    ) -> None:
        self.address = address
        self.certified = certified
        self.gate = 0
        """Hold what is written until the commit of this number."""
        self.is_admitted = False
        self.is_over = False
        self.pipe = ""
        self.owner = owner
        self._pipes = pipes
        self._connection = ""
        self._held: list[bytes] = []
        self.machine = Client(settings, pipes.bundles)
        self.node = Node(
            self.machine,
            preamble=Preamble("client", settings.name),
            credentials=credentials,
            limits=ConnectionLimits(max_frame_bytes=settings.max_frame_bytes),
            chance=chance,
            is_refusal_final=True,
        )

    def start(self, now_ns: int) -> None:
        """Start, and connect to the broker."""
        self._carry_out(self.node.start(now_ns), now_ns)
        self._carry_out(self.node.want(_HOME, _HOME, None, now_ns), now_ns)
        self.wake(now_ns)

    def call(self, do: Callable[..., Any], now_ns: int, *what: Any, **more: Any) -> Any:
        """Call the machine; its output is sent with the next `turn`."""
        rest, effects = self.node.call(do, now_ns, *what, **more)
        self._carry_out(effects, now_ns)
        return rest

    def received(self, frames: list[Any], now_ns: int) -> None:
        """Frames of the broker."""
        if not self._connection:
            return
        if len(frames) == 1 and type(frames[0]) is wire.Parts and not self.node.is_stirred:
            self._carry_out(self.node.pass_on(self._connection, frames[0], now_ns), now_ns)
        else:
            self.node.handed(self._connection, frames)
        self.turn(now_ns)

    def turn(self, now_ns: int) -> None:
        """Process what arrived, and send what waits."""
        while self.node.is_stirred and not self.is_over:
            self._carry_out(self.node.turn(now_ns), now_ns)

    def wake(self, now_ns: int) -> None:
        """The member's timer has expired."""
        if not self.is_over:
            self._carry_out(self.node.wake(now_ns), now_ns)
            self.turn(now_ns)

    def lost(self, reason: str, now_ns: int) -> None:
        """The broker has closed the pipe."""
        connection, self._connection, self.pipe = self._connection, "", ""
        self._held = []
        self.is_admitted = False
        if connection and not self.is_over:
            self._carry_out(self.node.lost(connection, reason, now_ns), now_ns)
            self.turn(now_ns)

    def release(self) -> None:
        """A commit is durable: send what waited for it."""
        if self._held and self.gate <= self._pipes.committed and self.pipe:
            held, self._held = self._held, []
            self._pipes.write_pipe(self.pipe, held)

    @property
    def is_held(self) -> bool:
        """Whether something waits for a commit."""
        return bool(self._held)

    def leave(self, now_ns: int, reason: str) -> None:
        """Acknowledge what was taken, and disconnect."""
        if self.is_over:
            return
        if self.gate <= self._pipes.committed:  # what is not durable here stays with the broker
            self.call(self.machine.leave, now_ns)
        self.turn(now_ns)
        self.is_over = True
        self._held = []
        if self.pipe:
            self._pipes.shut_pipe(self.pipe, reason)
            self.pipe = self._connection = ""

    def _carry_out(self, effects: list[NodeEffect], now_ns: int) -> None:
        for effect in effects:
            match effect:
                case DeliverTogether():
                    self.owner.on_deliver_together(effect)
                case Deliver():
                    self.owner.on_deliver(effect)
                case Confirmed(kind, name):
                    self.owner.on_confirmed(kind, name)
                case Write(_, parts):
                    self._write(parts)
                case SetTimer(at_ns):
                    self._pipes.wake_at(self, at_ns)
                case Failed():
                    self.owner.on_failed(effect)
                case Dial(connection):
                    self._dial(connection, now_ns)
                case Shut(_, reason):
                    if self.pipe:
                        self._pipes.shut_pipe(self.pipe, reason)
                        self.lost(reason, now_ns)
                case Admitted():
                    self.is_admitted = True
                    self.owner.on_admitted()
                case Unreached(_, why, code):
                    if code:
                        self.owner.on_refused(code, why)
                case Parted():
                    self.is_admitted = False
                case _:
                    pass  # nothing that concerns an application

    def _write(self, frames: list[bytes]) -> None:
        if self._held or self.gate > self._pipes.committed:
            self._held += frames
            self._pipes.hold(self)
        elif self.pipe:
            self._pipes.write_pipe(self.pipe, frames)

    def _dial(self, connection: str, now_ns: int) -> None:
        if self.is_over:
            return
        self._connection = connection
        self.pipe = self._pipes.open_pipe(self, now_ns)
        effects = self.node.opened(connection, now_ns, address=self.address, is_encrypted=True, is_local=True)
        self._carry_out(effects, now_ns)
        self.turn(now_ns)
