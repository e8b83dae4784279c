"""Stamps as pairs of strings: the user properties of MQTT 5, the headers of AMQP, Kafka or NATS.

Two pairs: who published, and the stamp in base64. Brokers pass them on as they are.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import Final

from tidings.errors import InputError
from tidings.ordering._stamps import Stamp

__all__ = ["from_properties", "to_properties"]

PUBLISHER: Final = "tidings-publisher"
STAMP: Final = "tidings-stamp"


def to_properties(publisher: str, stamp: Stamp) -> list[tuple[str, str]]:
    """What to send along with the event."""
    return [(PUBLISHER, publisher), (STAMP, base64.b64encode(stamp.encode()).decode("ascii"))]


def from_properties(properties: Iterable[tuple[str, str]]) -> tuple[str, Stamp] | None:
    """The publisher and the stamp among these pairs; None if there are none, InputError if they are no such."""
    found = dict(properties)
    if PUBLISHER not in found and STAMP not in found:
        return None
    try:
        return found[PUBLISHER], Stamp.decode(base64.b64decode(found[STAMP], validate=True))
    except KeyError as error:
        raise InputError(f"a stamped event carries both {PUBLISHER} and {STAMP}; {error.args[0]} is missing") from None
    except binascii.Error:
        raise InputError(f"{STAMP} is not base64: {found[STAMP][:40]!r}") from None
