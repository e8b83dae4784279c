"""A node: a machine with everything between it and its sockets, disk and clock, and no I/O."""

from tidings.protocol._lives import clock_offset_ns, next_epoch
from tidings.protocol.node._admission import Admission, Answer, Preamble, Rights, Rule, Token, read_answer
from tidings.protocol.node._effects import (
    Admitted,
    Commit,
    Dial,
    NodeEffect,
    Parted,
    Read,
    Report,
    Shut,
    Unreached,
    Write,
)
from tidings.protocol.node._framing import (
    CHECKED_BYTES,
    DamageError,
    FramingError,
    Splitter,
    checked,
    joined,
    plain,
    prefixed,
)
from tidings.protocol.node._node import CHECKED_FROM, GRACE_NS, STEP_BYTES, ConnectionLimits, Directory, Node
from tidings.protocol.node._records import Opened, opened, sealed, value_of

__all__ = [
    "CHECKED_BYTES",
    "CHECKED_FROM",
    "GRACE_NS",
    "STEP_BYTES",
    "Admission",
    "Admitted",
    "Answer",
    "Commit",
    "ConnectionLimits",
    "DamageError",
    "Dial",
    "Directory",
    "FramingError",
    "Node",
    "NodeEffect",
    "Opened",
    "Parted",
    "Preamble",
    "Read",
    "Report",
    "Rights",
    "Rule",
    "Shut",
    "Splitter",
    "Token",
    "Unreached",
    "Write",
    "checked",
    "clock_offset_ns",
    "joined",
    "next_epoch",
    "opened",
    "plain",
    "prefixed",
    "read_answer",
    "sealed",
    "value_of",
]
