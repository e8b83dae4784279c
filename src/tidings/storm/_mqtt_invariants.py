"""The guarantees of doors for MQTT clients: checks as in `_invariants`, which also judges what is owed to them."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidings.model.filters import Filter
from tidings.storm._mqtt_history import Got, Greeting
from tidings.storm._mqtt_plan import MqttClientPlan
from tidings.storm._network import GUEST

if TYPE_CHECKING:
    from tidings.storm._invariants import Evidence

__all__ = ["mqtt_accepted", "mqtt_in_time", "mqtt_no_mismatch", "mqtt_qos_2_once", "mqtt_session_present"]

SECOND: Final = 10**9
_REPORTED_MAX: Final = 5
_HELD_NS: Final = 6 * SECOND
"""How long what a door has sent may be under way, or a door may not notice that a client is gone."""


def _clients(evidence: "Evidence") -> dict[str, MqttClientPlan]:
    return {client.name: client for client in evidence.plan.mqtt.clients}


def mqtt_no_mismatch(evidence: "Evidence") -> Iterator[str]:
    """No MQTT client gets a message that its subscription does not match, that nobody has published, or with a wrong
    QoS; every answer is one of MQTT."""
    history, clients = evidence.history, _clients(evidence)
    filters: dict[str, Filter] = {}
    yield from history.mqtt.strange[:_REPORTED_MAX]
    reported = 0
    for got in history.mqtt.got:
        why = _mismatch(evidence, clients[got.client], got, filters)
        if why and reported < _REPORTED_MAX:
            reported += 1
            yield f"{got.client} got {got.payload[:60]!r} on {got.topic} at {_s(got.at_ns)}: {why}"


def _mismatch(evidence: "Evidence", client: MqttClientPlan, got: Got, filters: dict[str, Filter]) -> str:
    history = evidence.history
    ids = history.mqtt.events.get(got.payload)
    if not ids:
        return "nobody has published it"
    if not 0 < got.number <= len(client.wishes):
        return f"it has no subscription {got.number}"
    wish = client.wishes[got.number - 1]
    if wish.sql not in filters:
        filters[wish.sql] = Filter.parse(wish.sql)
    # Strangers may publish the same on several topics.
    events = [history.published[id].attributes for id in ids]
    matching = [each for each in events if each["topic"] == got.topic and filters[wish.sql].matches(each)]
    if not matching:
        return f"subscription {got.number} is {wish.sql}"
    qos = {min(int(each.get("mqtt_qos", 2)), wish.qos) for each in matching}
    return "" if got.qos in qos else f"with QoS {got.qos} instead of {qos}"


def mqtt_accepted(evidence: "Evidence") -> Iterator[str]:
    """PUBACK and PUBREC leave when the broker has accepted the event, not before."""
    for what in evidence.history.mqtt.unaccepted[:_REPORTED_MAX]:
        yield f"acknowledged and not accepted: {what}"


def mqtt_qos_2_once(evidence: "Evidence") -> Iterator[str]:
    """A message of QoS 2 comes once to each subscription of QoS 2 in a session, over all crashes; unless its publisher
    had lost its session and published it again, or sessions were lost with a disk."""
    history, clients = evidence.history, _clients(evidence)
    repeated = evidence.history.mqtt.repeated
    lost = {loss.broker for loss in history.mqtt.losses}
    times = Counter(
        (got.client, got.session, got.number, got.payload) for got in history.mqtt.got if got.qos == 2 and got.is_new
    )
    for (client, session, number, payload), count in times.items():
        if count == 1 or payload in repeated or any(id[0] == GUEST for id in history.mqtt.events[payload]):
            continue
        brokers = {clients[client].broker, *(history.published[id].broker for id in history.mqtt.events[payload])}
        if brokers & lost:
            history.excused["mqtt"] += 1
            continue
        at = ", ".join(_s(got.at_ns) for got in history.mqtt.got if (got.client, got.payload) == (client, payload))
        yield f"{payload[:60]!r} came {count} times to subscription {number} of {client} in session {session}: {at}"


def mqtt_in_time(evidence: "Evidence") -> Iterator[str]:
    """No door sends a client a message that has expired, or that its subscription no longer wants, except one of QoS 2
    that it has sent before."""
    history = evidence.history
    jumped = {event for loss in history.losses if loss.what == "clock" for event in loss.events | loss.copied}
    doors = {loss.broker for loss in history.mqtt.losses if loss.what == "clock"}
    reported = 0
    for stale in history.mqtt.stale:
        if not jumped.intersection(stale.events) and stale.broker not in doors and reported < _REPORTED_MAX:
            reported += 1
            yield (
                f"{stale.broker} sent {stale.events} with QoS {stale.qos} to {stale.client} at {_s(stale.at_ns)}, "
                f"{stale.age_s:.3f} s old"
            )


def mqtt_session_present(evidence: "Evidence") -> Iterator[str]:
    """CONNACK tells the truth about the session: it is there if it was confirmed, was not ended and has not expired,
    and not otherwise."""
    clients = _clients(evidence)
    for greeting in evidence.history.mqtt.greetings:
        client = clients[greeting.client]
        lie = _lie(evidence, client, greeting)
        if lie:
            yield f"{client.name} was told at {_s(greeting.at_ns)} that its session is {lie}"


def _lie(evidence: "Evidence", client: MqttClientPlan, greeting: Greeting) -> str:
    if greeting.is_present:
        if greeting.is_clean or not client.is_kept:
            return "there, and had asked for a new one"
        if greeting.heard_ns is not None and _is_over(evidence, client, greeting.heard_ns, greeting.at_ns):
            return "there, and it had ended"
        return ""
    if greeting.is_clean or greeting.welcomed_ns is None or greeting.heard_ns is None:
        return ""
    if greeting.at_ns - greeting.heard_ns > client.session_s * SECOND - _HELD_NS:
        return ""
    since_ns = greeting.welcomed_ns
    if any(loss.broker == client.broker and loss.at_ns >= since_ns for loss in evidence.history.mqtt.losses):
        evidence.history.excused["mqtt"] += 1
        return ""
    return f"not there, although it had begun at {_s(since_ns)} and was in use at {_s(greeting.heard_ns)}"


def _is_over(evidence: "Evidence", client: MqttClientPlan, since_ns: int, until_ns: int) -> bool:
    """Whether a session must have ended: its broker, in good health, has not seen the client for too long."""
    if until_ns - since_ns <= client.session_s * SECOND + _HELD_NS:
        return False
    return not any(
        fault.at_ns <= until_ns and fault.until_ns >= since_ns
        for fault in evidence.plan.faults
        if fault.place in ("", client.broker)
    )


def _s(at_ns: int) -> str:
    return f"{at_ns / SECOND:.3f} s"
