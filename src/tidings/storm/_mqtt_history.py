"""What MQTT clients of a storm have seen, in true time: the input of its checks."""

from typing import Literal, NamedTuple

from tidings.protocol import EventId

__all__ = ["Got", "Greeting", "MqttHistory", "MqttLoss", "Stale"]


class Greeting(NamedTuple):
    """A CONNACK: whether a session is there, and what is known of the sessions before."""

    at_ns: int
    client: str
    is_present: bool
    is_clean: bool
    """Whether the client has asked for a new session."""
    welcomed_ns: int | None
    """When the last session began for the client, if there was any."""
    heard_ns: int | None
    """When the client last heard of its broker before this connection."""


class Got(NamedTuple):
    """A client got a message, in this session, by the subscription of this number.

    `is_new`: not under a number of QoS 2 that it knew.
    """

    at_ns: int
    client: str
    session: int
    number: int
    topic: str
    payload: bytes
    qos: int
    is_dup: bool
    is_new: bool


class Stale(NamedTuple):
    """A door has sent a message whose time was over."""

    at_ns: int
    client: str
    broker: str
    events: tuple[EventId, ...]
    age_s: float
    qos: int


class MqttLoss(NamedTuple):
    """A broker has lost its sessions, or some records of them, or its clock has jumped."""

    at_ns: int
    broker: str
    what: Literal["disk", "clock", "records"]


class MqttHistory:
    """The record of MQTT in one storm."""

    def __init__(self) -> None:
        self.greetings: list[Greeting] = []
        self.got: list[Got] = []
        self.events: dict[bytes, list[EventId]] = {}
        """By payload: the events that a message has become, more than one if it was published again."""
        self.repeated: set[bytes] = set()
        """The messages that clients published again as new ones, after the loss of a session."""
        self.stale: list[Stale] = []
        self.strange: list[str] = []
        self.unaccepted: list[str] = []
        self.losses: list[MqttLoss] = []
