"""The states of a connection, a transfer and a move, as tables; the diagrams in the documentation are drawn from them.

A step that a table lacks is our bug, not the peer's: what peers may send in each state is checked before (`ALLOWED`).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from tidings.protocol import wire

__all__ = [
    "ALLOWED",
    "MOVE_STEPS",
    "PEER_STEPS",
    "TRANSFER_STEPS",
    "MoveState",
    "MoveStep",
    "PeerState",
    "PeerStep",
    "TransferState",
    "TransferStep",
    "diagram",
]


class _Named(Enum):
    """States and steps are keys of tables: compared by identity, which costs nothing to hash."""

    __hash__ = object.__hash__


class PeerState(_Named):
    """A machine's knowledge of the other end of a connection."""

    AWAY = "away"
    GREETING = "greeting"
    UP = "up"


class PeerStep(_Named):
    """What can happen between two machines."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    GREETED = "greeted"
    SILENT = "silent"


PEER_STEPS: Final[Mapping[tuple[PeerState, PeerStep], PeerState]] = {
    (PeerState.AWAY, PeerStep.CONNECTED): PeerState.GREETING,
    (PeerState.AWAY, PeerStep.DISCONNECTED): PeerState.AWAY,
    (PeerState.GREETING, PeerStep.CONNECTED): PeerState.GREETING,
    (PeerState.GREETING, PeerStep.GREETED): PeerState.UP,
    (PeerState.GREETING, PeerStep.SILENT): PeerState.GREETING,
    (PeerState.GREETING, PeerStep.DISCONNECTED): PeerState.AWAY,
    (PeerState.UP, PeerStep.CONNECTED): PeerState.GREETING,
    (PeerState.UP, PeerStep.GREETED): PeerState.UP,
    (PeerState.UP, PeerStep.SILENT): PeerState.GREETING,
    (PeerState.UP, PeerStep.DISCONNECTED): PeerState.AWAY,
}


class TransferState(_Named):
    """The state of an event for one neighbour or client."""

    WAITING = "waiting"
    UNDER_WAY = "under way"
    TAKEN = "taken"
    DROPPED = "dropped"


class TransferStep(_Named):
    """What can happen to it."""

    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    TIMED_OUT = "timed out"
    PEER_LOST = "peer lost"
    EXPIRED = "expired"


TRANSFER_STEPS: Final[Mapping[tuple[TransferState, TransferStep], TransferState]] = {
    (TransferState.WAITING, TransferStep.SENT): TransferState.UNDER_WAY,
    (TransferState.WAITING, TransferStep.PEER_LOST): TransferState.WAITING,
    (TransferState.WAITING, TransferStep.EXPIRED): TransferState.DROPPED,
    (TransferState.UNDER_WAY, TransferStep.ACKNOWLEDGED): TransferState.TAKEN,
    (TransferState.UNDER_WAY, TransferStep.TIMED_OUT): TransferState.UNDER_WAY,
    (TransferState.UNDER_WAY, TransferStep.PEER_LOST): TransferState.WAITING,
    (TransferState.UNDER_WAY, TransferStep.EXPIRED): TransferState.DROPPED,
}


class MoveState(Enum):
    """The state of a client's move to another home broker."""

    AT_HOME = "at home"
    JOINING = "joining"
    PAUSED = "paused"


class MoveStep(Enum):
    """What can happen in a move."""

    ASKED = "asked"
    JOINED = "joined"
    HANDED_OVER = "handed over"
    CALLED_OFF = "called off"


MOVE_STEPS: Final[Mapping[tuple[MoveState, MoveStep], MoveState]] = {
    (MoveState.AT_HOME, MoveStep.ASKED): MoveState.JOINING,
    (MoveState.JOINING, MoveStep.JOINED): MoveState.PAUSED,
    (MoveState.JOINING, MoveStep.CALLED_OFF): MoveState.AT_HOME,
    (MoveState.PAUSED, MoveStep.HANDED_OVER): MoveState.AT_HOME,
    (MoveState.PAUSED, MoveStep.CALLED_OFF): MoveState.AT_HOME,
}

_GREETINGS: Final[frozenset[type]] = frozenset((wire.Hello, wire.Welcome))
_ALWAYS: Final[frozenset[type]] = frozenset((wire.Pong, wire.Ack, wire.Credit, wire.Error)) | _GREETINGS
ALLOWED: Final[Mapping[tuple[str, str], frozenset[type]]] = {
    ("broker", "broker"): _ALWAYS
    | {
        wire.Ping,
        wire.Transfer,
        wire.LinkState,
        wire.Interest,
        wire.InterestPart,
        wire.Ask,
        wire.Done,
        wire.Ledger,
        wire.Rehomed,
        wire.Copy,
        wire.Copied,
        wire.Release,
        wire.Recover,
    }
    | {wire.TraceResult, wire.RelocationRequest, wire.RelocationAnswer, wire.TraceRequest, wire.TraceAnswer},
    ("broker", "client"): _ALWAYS
    | {
        wire.Publish,
        wire.Subscribe,
        wire.Unsubscribe,
        wire.Advertise,
        wire.Unadvertise,
        wire.MigrationUpdate,
        wire.Moving,
        wire.Given,
    },
    ("client", "broker"): _ALWAYS | {wire.Ping, wire.Transfer, wire.Done, wire.Move, wire.MigrationComplete},
}
"""By the kind of the receiver and of the sender: what may be sent, once both have greeted."""


def diagram(steps: Mapping[tuple[Enum, Enum], Enum]) -> str:
    """The table as a Mermaid state diagram; equal tables give equal diagrams."""
    lines = ["stateDiagram-v2"]
    for (before, step), after in steps.items():
        lines.append(f"    {_word(before)} --> {_word(after)}: {step.value}")
    return "\n".join(lines)


def _word(state: Enum) -> str:
    return str(state.value).replace(" ", "_")
