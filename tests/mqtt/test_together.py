"""Events that go to many MQTT clients of one broker: read and encoded once, with every promise to each of them kept."""

from typing import Any

import pytest
from tests.mqtt.world import World

import tidings.mqtt._gateway as gateway_module
from tidings.mqtt._codec import Reader, encode
from tidings.mqtt._packets import Ack, Kind, Ping, Publish

MANY = 6


def audience(world: World, qos: int = 0, **more: Any) -> list[Any]:
    """Connected clients with equal subscriptions."""
    clients = [world.connect(f"s{number}", **more) for number in range(MANY)]
    for client in clients:
        client.subscribe("t/#", qos)
    return clients


def send(world: World, count: int, *, client: Any = None, **more: Any) -> None:
    """Events that leave together."""
    publisher = client or world.connect("p")
    qos = more.get("qos", 0)
    publisher.send(
        *(
            Publish(topic="t/x", payload=b"%d" % number, packet_id=number + 1 if qos else 0, **more)
            for number in range(count)
        )
    )
    world.wait(0.2)


def test_an_event_for_many_clients_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    clients = audience(world)
    read, handed = [], []
    read_event = gateway_module.read_event
    monkeypatch.setattr(gateway_module, "read_event", lambda *what: (read.append(1), read_event(*what))[1])
    deliver = gateway_module.Session.on_deliver_together
    monkeypatch.setattr(
        gateway_module.Session,
        "on_deliver_together",
        lambda session, effect: (handed.append(effect.bundle), deliver(session, effect))[1],
    )
    send(world, 5)
    assert [client.payloads for client in clients] == [[b"%d" % number for number in range(5)]] * MANY
    assert len(read) == 5
    assert len(handed) == MANY
    assert len({id(bundle) for bundle in handed}) == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_client_gets_all_in_order_under_numbers_of_its_own(qos: int) -> None:
    world = World()
    clients = audience(world, qos)
    clients[0].send(
        Publish(topic="t/x", payload=b"first", qos=qos, packet_id=9 if qos else 0)
    )  # others are ahead by it
    world.wait(0.2)
    send(world, 8, qos=qos)
    for client in clients:
        assert client.payloads == [b"first", *(b"%d" % number for number in range(8))]
        assert [message.packet_id for message in client.messages] == ([*range(1, 10)] if qos else [0] * 9)
        assert {message.qos for message in client.messages} == {qos}
    if qos == 1:
        clients[0].send(*(Ack(Kind.PUBACK, number) for number in range(1, 10)))
        assert world.gateway.sessions["s0"].deliveries.out == {}
        assert len(world.gateway.sessions["s1"].deliveries.out) == 9


def test_versions_options_and_limits_of_each_client_hold_for_what_they_get_together() -> None:
    world = World()
    plain, old = world.connect("plain"), world.connect("old", version=4)
    short = world.connect("short", properties={"maximum_packet_size": 60})
    aliased = world.connect("aliased", properties={"topic_alias_maximum": 4})
    numbered, aged = world.connect("numbered"), world.connect("aged")
    for client in (plain, old, short, aliased):
        client.subscribe("t/#")
    numbered.subscribe("t/#", properties={"subscription_ids": (7,)})
    aged.subscribe("t/#", properties={"user": (("report", "age,late"),)})
    own = world.connect("own")
    own.subscribe("t/#", no_local=True)
    own.send(
        Publish(topic="t/x", payload=b"a", properties={"message_expiry_s": 9}),
        Publish(topic="t/x", payload=b"b" * 60, properties={"message_expiry_s": 9}),
    )
    world.wait(0.2)
    everything = [b"a", b"b" * 60]
    assert [client.payloads for client in (plain, old, aliased, numbered, aged)] == [everything] * 5
    assert short.payloads == [b"a"]
    assert own.payloads == []
    assert [message.topic for message in aliased.messages] == ["t/x", ""]
    assert {message.properties["message_expiry_s"] for message in plain.messages} == {9}
    assert {message.properties["subscription_ids"] for message in numbered.messages} == {(7,)}
    assert {dict(message.properties["user"])["late"] for message in aged.messages} == {"false"}
    assert {tuple(message.properties) for message in old.messages} == {()}


def test_receive_maximum_and_accounts_hold_for_what_clients_get_together() -> None:
    world = World()
    clients = audience(world, 1, properties={"receive_maximum": 3})
    send(world, 10)
    clients.append(world.connect("late"))
    clients[-1].subscribe("t/#", properties={"user": (("max-delay-ms", "1"),)})
    send(world, 10, client=world.connect("p2"), qos=1)
    for client in clients[:MANY]:
        assert len([message for message in client.messages if message.qos]) == 3
        while (numbers := [message.packet_id for message in client.messages if message.qos]) and len(numbers) < 10:
            client.send(Ack(Kind.PUBACK, numbers[-1]), Ack(Kind.PUBACK, numbers[-2]), Ack(Kind.PUBACK, numbers[-3]))
            world.wait(0.1)
    world.wait(10.0)  # outcomes are reported
    for client in clients[:MANY]:
        assert len(client.payloads) == 20
    balances = world.machine.accounts.balances()
    assert [balances[f"s{number}/t/#"].known.on_time for number in range(MANY)] == [20] * MANY


def test_pubacks_in_a_row_are_read_together_up_to_the_first_packet_that_is_none() -> None:
    reader = Reader()
    rows = b"".join(encode(Ack(Kind.PUBACK, number)) for number in (1, 256, 65_535))
    reader.feed(rows + encode(Ping(Kind.PINGREQ)) + encode(Ack(Kind.PUBACK, 4)) + b"\x40\x02\x00")
    assert reader.pubacks() == [1, 256, 65_535]
    assert reader.pubacks() == []
    assert reader.next() == Ping(Kind.PINGREQ)
    assert reader.pubacks() == [4]
    assert reader.next() is None
    reader.feed(b"\x05" + encode(Ack(Kind.PUBACK, 6, 0x80)))
    assert reader.pubacks() == [5]
    assert reader.pubacks() == []
    assert reader.next() == Ack(Kind.PUBACK, 6, 0x80)
