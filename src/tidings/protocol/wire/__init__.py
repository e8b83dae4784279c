"""The messages between machines: MessagePack arrays, tagged, decoded strictly.

Rules:

- A frame is one message. It is refused whole if it is too long, does not decode, or breaks a limit; a refused frame
  changes nothing but a counter.
- The version of a connection is agreed before the first message (`node._admission`): the latest that both ends know.
  `Hello` and `Welcome` come first and have it as their first field, so that a peer of any other version can be refused
  by name.
- `session` is the sender's epoch, a number that rises with every start. Numbers of transfers count within it, so a
  frame from before a restart of its sender is recognised. Fields called `life` are epochs, too.
- Times are nanoseconds: durations, or readings of the sender's clock. Clocks need not agree; their difference is
  measured with pings (`links/_meter`).
- Fields with a default come last and may be missing: a peer that does not know them neither sends nor reads them.
- Events travel together: a `Publish` or a `Transfer` holds all that are to be sent, numbered consecutively, and
  an `Ack` acknowledges whole ranges of numbers.
- What only the ends read (attributes, stamp, payload) travels as one opaque `content`, which brokers copy. The
  publisher adds a checksum of it, which every broker that takes on the event and the subscriber compare.
"""

from tidings.protocol.wire._codec import (
    Message,
    Parts,
    Registration,
    Request,
    check_of,
    decode,
    decode_attributes,
    decode_content,
    encode,
    encode_content,
    encode_plain,
    encode_transfer,
    filters_in,
    is_sound,
)
from tidings.protocol.wire._events import (
    Ack,
    Content,
    Copied,
    Copy,
    Credit,
    Event,
    Given,
    Handover,
    Outcome,
    Publication,
    Publish,
    Recover,
    Release,
    Transfer,
)
from tidings.protocol.wire._fields import (
    COPIES_FROM,
    IN_ORDER,
    LATEST_NS,
    LONGEST_NS,
    MAX_ATTRIBUTES,
    MAX_BATCH,
    MAX_CONFLATED,
    MAX_CREDIT,
    MAX_FILTER,
    MAX_FRAME_BYTES,
    MAX_NAME,
    MAX_OUTCOMES,
    MAX_PATH,
    MAX_RECORD,
    MAX_ROWS,
    MAX_TARGETS,
    MAX_TERMS,
    MAX_TRACED,
    OLDEST_VERSION,
    VERSION,
    Term,
    WireMessage,
)
from tidings.protocol.wire._greetings import Done, Error, Hello, Ping, Pong, Welcome
from tidings.protocol.wire._overlay import Ask, Interest, InterestPart, Ledger, LinkState, Rehomed
from tidings.protocol.wire._relocation import (
    Answer,
    MigrationComplete,
    MigrationUpdate,
    Move,
    Moving,
    RelocationAnswer,
    RelocationRequest,
    Trace,
    TraceAnswer,
    TraceRequest,
    TraceResult,
)
from tidings.protocol.wire._requests import Advertise, Entry, Subscribe, Unadvertise, Unsubscribe

__all__ = [
    "COPIES_FROM",
    "IN_ORDER",
    "LATEST_NS",
    "LONGEST_NS",
    "MAX_ATTRIBUTES",
    "MAX_BATCH",
    "MAX_CONFLATED",
    "MAX_CREDIT",
    "MAX_FILTER",
    "MAX_FRAME_BYTES",
    "MAX_NAME",
    "MAX_OUTCOMES",
    "MAX_PATH",
    "MAX_RECORD",
    "MAX_ROWS",
    "MAX_TARGETS",
    "MAX_TERMS",
    "MAX_TRACED",
    "OLDEST_VERSION",
    "VERSION",
    "Ack",
    "Advertise",
    "Answer",
    "Ask",
    "Content",
    "Copied",
    "Copy",
    "Credit",
    "Done",
    "Entry",
    "Error",
    "Event",
    "Given",
    "Handover",
    "Hello",
    "Interest",
    "InterestPart",
    "Ledger",
    "LinkState",
    "Message",
    "MigrationComplete",
    "MigrationUpdate",
    "Move",
    "Moving",
    "Outcome",
    "Parts",
    "Ping",
    "Pong",
    "Publication",
    "Publish",
    "Recover",
    "Registration",
    "Rehomed",
    "Release",
    "RelocationAnswer",
    "RelocationRequest",
    "Request",
    "Subscribe",
    "Term",
    "Trace",
    "TraceAnswer",
    "TraceRequest",
    "TraceResult",
    "Transfer",
    "Unadvertise",
    "Unsubscribe",
    "Welcome",
    "WireMessage",
    "check_of",
    "decode",
    "decode_attributes",
    "decode_content",
    "encode",
    "encode_content",
    "encode_plain",
    "encode_transfer",
    "filters_in",
    "is_sound",
]
