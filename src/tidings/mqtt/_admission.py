"""Admission of MQTT clients: the contents of CONNECT, and the client that the broker has yet to admit."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidings.mqtt._link import Link
from tidings.mqtt._member import Member
from tidings.mqtt._packets import V5, Connect, PacketError, Reason
from tidings.mqtt._records import NEVER
from tidings.mqtt._topics import is_topic
from tidings.protocol import Deliver, DeliverTogether, Failed
from tidings.protocol.node import Credentials
from tidings.protocol.wire import MAX_NAME

if TYPE_CHECKING:
    from tidings.mqtt._gateway import Gateway

__all__ = ["REFUSALS", "Attempt", "asked_expiry_s", "client_id_of", "credentials_of", "retaining_client"]

REFUSALS: Final = {
    "token": Reason.BAD_USER_NAME_OR_PASSWORD,
    "identity": Reason.BAD_USER_NAME_OR_PASSWORD,
    "certificate": Reason.NOT_AUTHORIZED,
    "too-many": Reason.QUOTA_EXCEEDED,
}
"""MQTT's reason codes for the broker's refusals of a client; for any other, the server is unavailable."""


def retaining_client(broker: str) -> str:
    """The name of the client that collects a broker's retained messages."""
    return f"mqtt-retained@{broker}"


def client_id_of(connect: Connect, broker: str, assign: Callable[[], str]) -> tuple[str, dict[str, Any]]:
    """The client identifier, and the properties of CONNACK that inform the client of one that it did not choose.

    PacketError if the client cannot be served.
    """
    client_id, more = connect.client_id, {}
    if not client_id:
        if connect.version != V5 and not connect.clean_start:  # 3.1.1 [MQTT-3.1.3-8]
            raise PacketError(Reason.CLIENT_IDENTIFIER_NOT_VALID, "a persistent session needs a client identifier")
        client_id = more["assigned_client_id"] = assign()  # [MQTT-3.1.3-6]
    if len(client_id) > MAX_NAME or client_id == retaining_client(broker):
        raise PacketError(Reason.CLIENT_IDENTIFIER_NOT_VALID, f"from 1 to {MAX_NAME} characters are possible")
    if "authentication_method" in connect.properties:
        why = "enhanced authentication is not supported: use a user name and password, or a certificate"
        raise PacketError(Reason.BAD_AUTHENTICATION_METHOD, why)
    if connect.will is not None and not is_topic(connect.will.topic):
        raise PacketError(Reason.TOPIC_NAME_INVALID, "the topic of the will is not valid for publishing")
    return client_id, more


def credentials_of(connect: Connect, *, has_tokens: bool) -> Credentials:
    """The password is a token in a network with tokens; otherwise it is the secret that a name is bound to."""
    password = None if connect.password is None else connect.password.decode(errors="replace")
    return Credentials(token=password) if has_tokens else Credentials(secret=password or None)


def asked_expiry_s(connect: Connect) -> int:
    """For how long the client asks that its session outlives the connection."""
    if connect.version == V5:
        return int(connect.properties.get("session_expiry_s", 0))
    return 0 if connect.clean_start else NEVER


class Attempt:
    """A CONNECT whose client the broker has yet to admit."""

    def __init__(self, gateway: "Gateway", link: Link, connect: Connect, client_id: str, more: dict[str, Any]) -> None:
        self.gateway = gateway
        self.link = link
        self.connect = connect
        self.client_id = client_id
        self.more = more
        self.member: Member

    def on_admitted(self) -> None:
        self.gateway.welcome(self)

    def on_refused(self, code: str, why: str) -> None:
        self.gateway.turn_away(self, code, why)

    def on_deliver(self, effect: Deliver) -> None:
        """Nothing is subscribed to yet."""

    def on_deliver_together(self, effect: DeliverTogether) -> None:
        """The same."""

    def on_confirmed(self, kind: str, name: str) -> None:
        """Nothing was asked yet."""

    def on_failed(self, effect: Failed) -> None:
        """Nothing was asked yet."""
