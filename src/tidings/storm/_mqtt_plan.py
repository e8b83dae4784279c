"""What a seed decides about MQTT: in some storms a few brokers have MQTT doors, and a few clients speak MQTT."""

from typing import Final, NamedTuple

from tidings.mqtt import topic_filter_sql
from tidings.mqtt.packets import V5, V311
from tidings.storm._dice import Dice
from tidings.storm._kinds import FaultKind
from tidings.storm._settings import StormSettings

__all__ = ["MqttAbsence", "MqttClientPlan", "MqttPlan", "MqttPublication", "MqttWish", "draw_mqtt"]

SECOND: Final = 10**9
SHARE: Final = 0.3
"""The share of storms with MQTT clients."""
CLIENTS: Final = (3, 7)
RATE_PER_S: Final = (0.3, 2.0)
AWAY_S: Final = (0.1, 12.0)
LONG_SESSION_S: Final = 80
SHORT_SESSION_S: Final = 4
SHORT: Final = 0.2
"""The share of sessions that end while their clients are away."""
FRESH: Final = 0.1
"""How often a client with a session asks for a new one when it returns."""
_TOGETHER: Final = 0.3
"""How often several messages are published at once."""
_MOST_TOGETHER: Final = 12
_TOPICS: Final = ("news", "trade", "alarm", "scores", "weather")
_FILTERS: Final = ("", "", "level > 50", "urgent = TRUE OR level < 20", "region IS NULL")
_LIFETIMES_S: Final = (1, 3, 12, 20, None)
_DELAYS_S: Final = (None, None, None, 2.0, 10.0)


class MqttWish(NamedTuple):
    """A subscription of an MQTT client; `number` is its subscription identifier."""

    number: int
    topic_filter: str
    filter: str
    qos: int
    max_delay_ns: int | None

    @property
    def sql(self) -> str:
        """The filter that it stands for."""
        topics = topic_filter_sql(self.topic_filter)
        return f"{topics} AND ({self.filter})" if self.filter else topics


class MqttClientPlan(NamedTuple):
    name: str
    broker: str
    version: int
    session_s: int
    """How long its session is kept; 0: not at all."""
    receive_maximum: int
    has_aliases: bool
    wishes: tuple[MqttWish, ...]
    is_slow: bool
    """Whether it takes a while to read."""

    @property
    def is_kept(self) -> bool:
        """Whether its session outlives its connection."""
        return self.session_s > 0


class MqttPublication(NamedTuple):
    """A message; its text is unique."""

    at_ns: int
    client: str
    topic: str
    fields: dict[str, int | bool | str]
    qos: int
    lifetime_s: int | None


class MqttAbsence(NamedTuple):
    """A client is cut off; `resets`: both ends of its connection notice at once."""

    at_ns: int
    until_ns: int
    client: str
    resets: bool


class MqttPlan(NamedTuple):
    """Everything about MQTT in a storm; empty in most."""

    clients: tuple[MqttClientPlan, ...] = ()
    publications: tuple[MqttPublication, ...] = ()
    absences: tuple[MqttAbsence, ...] = ()
    garbage: tuple[tuple[int, str], ...] = ()
    """When strangers send garbage to which doors."""

    @property
    def doors(self) -> tuple[str, ...]:
        """The brokers with doors."""
        return tuple(sorted({client.broker for client in self.clients}))


def draw_mqtt(
    dice: Dice,
    settings: StormSettings,
    brokers: tuple[str, ...],
    bursts: tuple[tuple[float, float], ...],
    publishing: float,
    end_ns: int,
) -> MqttPlan:
    """The MQTT part of a plan; faults are in the bursts, and publishing ends at this share of the storm."""
    kinds: tuple[FaultKind, ...] = settings.kinds
    is_asked = settings.mqtt is True or any(kind.startswith("mqtt-") for kind in kinds)
    has_any = dice.happens(SHARE)
    if settings.mqtt is False or not (is_asked or has_any):
        return MqttPlan()
    count = CLIENTS[0] + dice.whole(CLIENTS[1] - CLIENTS[0])
    doors = [dice.one_of(brokers) for _ in range(1 + dice.whole(2))]
    clients = tuple(_client(dice, f"m{number:02}", dice.one_of(doors)) for number in range(count))
    absences: list[MqttAbsence] = []
    garbage: list[tuple[int, str]] = []
    if settings.faults:
        if not kinds or "mqtt-away" in kinds:
            absences = _absences(dice, clients, bursts, end_ns)
        if not kinds or "mqtt-garbage" in kinds:
            places = tuple(client.broker for client in clients)
            garbage = [
                (round(dice.between(0.02, 0.95) * end_ns), dice.one_of(places)) for _ in range(1 + dice.whole(4))
            ]
    publications = _publications(dice, clients, publishing * end_ns)
    return MqttPlan(clients, tuple(publications), tuple(sorted(absences)), tuple(sorted(garbage)))


def _client(dice: Dice, name: str, broker: str) -> MqttClientPlan:
    version = V5 if dice.happens(0.7) else V311
    session_s = 0 if dice.happens(0.25) else SHORT_SESSION_S if dice.happens(SHORT) else LONG_SESSION_S
    if version == V311:
        session_s = LONG_SESSION_S if session_s else 0
    # Messages carry the identifier of their subscription with MQTT 5 alone.
    many = 1 + dice.whole(2) if version == V5 else 1
    topic_filters = list(dict.fromkeys(dice.one_of((*_TOPICS, "+", "#")) for _ in range(many)))
    wishes = tuple(
        MqttWish(
            number=number,
            topic_filter=topic_filter,
            filter=dice.one_of(_FILTERS) if version == V5 else "",
            qos=dice.whole(3),
            max_delay_ns=_delay_ns(dice) if version == V5 else None,
        )
        for number, topic_filter in enumerate(topic_filters, 1)
    )
    receive_maximum = dice.one_of((10, 20, 0xFFFF)) if version == V5 else 0xFFFF
    return MqttClientPlan(
        name=name,
        broker=broker,
        version=version,
        session_s=session_s,
        receive_maximum=receive_maximum,
        has_aliases=version == V5 and dice.happens(0.3),
        wishes=wishes,
        is_slow=dice.happens(0.3),
    )


def _delay_ns(dice: Dice) -> int | None:
    delay_s = dice.one_of(_DELAYS_S)
    return None if delay_s is None else round(delay_s * SECOND)


def _absences(
    dice: Dice, clients: tuple[MqttClientPlan, ...], bursts: tuple[tuple[float, float], ...], end_ns: int
) -> list[MqttAbsence]:
    found: list[MqttAbsence] = []
    for begin, end in bursts:
        for _ in range(1 + dice.whole(4)):
            client = dice.one_of(clients).name
            at_ns = round(dice.between(begin * end_ns, end * end_ns - AWAY_S[0] * SECOND))
            until_ns = round(min(at_ns + dice.between(*AWAY_S) * SECOND, end * end_ns))
            resets = dice.happens(0.5)
            if not any(each.client == client and each.until_ns >= at_ns and each.at_ns <= until_ns for each in found):
                found.append(MqttAbsence(at_ns, until_ns, client, resets))
    return found


def _publications(dice: Dice, clients: tuple[MqttClientPlan, ...], until_ns: float) -> list[MqttPublication]:
    rate_per_s = dice.between(*RATE_PER_S)
    found: list[MqttPublication] = []
    at_ns = 1.0 * SECOND
    while True:
        at_ns += dice.exponential(SECOND / rate_per_s)
        if at_ns >= until_ns:
            return found
        client = dice.one_of(clients)
        for _ in range(1 + dice.whole(_MOST_TOGETHER) if dice.happens(_TOGETHER) else 1):
            lifetime_s = dice.one_of(_LIFETIMES_S) if client.version == V5 else None
            fields: dict[str, int | bool | str] = {"level": dice.whole(100), "urgent": dice.happens(0.1)}
            if dice.happens(0.7):
                fields["region"] = dice.one_of(("north", "south"))
            fields["text"] = f"{client.name} {len(found)}"
            topic = dice.one_of(_TOPICS)
            found.append(MqttPublication(round(at_ns), client.name, topic, fields, dice.whole(3), lifetime_s))
