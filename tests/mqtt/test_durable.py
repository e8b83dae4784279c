"""What an MQTT client is told is true after a crash at the worst moment; a full store delays, and loses nothing."""

import pytest
from tests.mqtt.world import Client, World

from tidings.mqtt._packets import Ack, Kind, Publish, Subscribe, Unsubscribe, Wanted

KEPT = {"session_expiry_s": 300}


def returned(world: World, name: str = "s") -> Client:
    """The client after a crash: it continues its session."""
    world.is_slow = False
    return world.connect(name, clean_start=False, properties=KEPT)


@pytest.mark.parametrize("written", [(), ("broker",), ("door",), ("broker", "door")])
def test_suback_promises_a_subscription_that_a_crash_does_not_take(written: tuple[str, ...]) -> None:
    world = World()
    client = world.connect("s", properties=KEPT)
    world.is_slow = True
    client.send(Subscribe(packet_id=1, wanted=(Wanted(topic_filter="t", qos=1),)))
    for _ in range(10):  # commits end one at a time, until it is answered
        if client.got[-1].__class__.__name__ == "Suback":
            break
        world.sync()
        world.settle()
    world.kill(*written)
    again = returned(world)
    assert again.connack.session_present
    world.connect("p").publish("t", b"x", 1)
    assert again.payloads == [b"x"]


def test_unsuback_promises_an_end_that_a_crash_does_not_take_back() -> None:
    world = World()
    client = world.connect("s", properties=KEPT)
    client.subscribe("t", 1)
    world.is_slow = True
    client.send(Unsubscribe(packet_id=2, topic_filters=("t",)))
    for _ in range(10):
        if any(getattr(each, "kind", None) is Kind.UNSUBACK for each in client.got):
            break
        world.sync()
        world.settle()
    world.kill()
    again = returned(world)
    world.connect("p").publish("t", b"x", 1)
    assert again.payloads == []


def test_connack_of_a_clean_start_promises_that_the_session_before_is_gone() -> None:
    world = World()
    world.connect("s", properties=KEPT).subscribe("t", 1)
    world.is_slow = True
    client = world.open()
    world.clients[client.name].send_bytes(_connect("s", clean_start=True))
    for _ in range(10):
        if client.got:
            break
        world.sync()
        world.wait(0.1)
    assert not client.connack.session_present
    world.kill()
    again = returned(world)
    world.connect("p").publish("t", b"x", 1)
    assert again.payloads == []


def _connect(name: str, **more: bool) -> bytes:
    from tidings.mqtt._codec import encode
    from tidings.mqtt._packets import Connect

    return encode(Connect(client_id=name, properties=KEPT, **more))


def test_a_number_that_was_answered_not_found_is_free_after_a_crash_too() -> None:
    world = World()
    listener = world.connect("s", properties=KEPT)
    listener.subscribe("t", 2)
    client = world.connect("p", properties=KEPT)
    client.publish("t", b"one", 2, packet_id=5)
    world.is_slow = True
    client.send(Ack(Kind.PUBREL, 5))  # its record is being erased
    world.settle()
    client.send(Ack(Kind.PUBREL, 5))
    for _ in range(10):
        if client.acks(Kind.PUBCOMP):
            break
        world.sync()
        world.settle()
    world.kill()
    again, back = returned(world, "p"), returned(world)
    again.publish("t", b"two", 2, packet_id=5)
    world.wait(1.0)
    for message in back.messages:
        back.send(Ack(Kind.PUBREC, message.packet_id))
    assert b"two" in back.payloads


def test_who_has_a_message_of_qos_2_already_does_not_let_the_broker_forget_it_too_early() -> None:
    world = World()
    client = world.connect("s", properties=KEPT)
    client.subscribe("t", 2)
    publisher = world.connect("p", properties=KEPT)
    world.is_slow = True
    publisher.send(Publish(topic="t", payload=b"x", qos=2, packet_id=1))
    for _ in range(10):
        world.sync("broker") if world.gateway.sessions["s"].deliveries.out else world.sync()
        world.settle()
        if world.gateway.sessions["s"].deliveries.out:
            break
    assert not client.payloads, "its record is not durable yet"
    client.break_off()
    world.open().send_bytes(_connect("s", clean_start=False))
    for _ in range(10):
        world.sync("broker")
        world.wait(0.5)
    world.kill("broker")
    again = returned(world)
    world.wait(10.0)
    assert again.payloads == [b"x"]


def test_a_full_store_delays_and_loses_nothing_and_erasures_make_room() -> None:
    world = World()
    client = world.connect("s", properties=KEPT)
    client.subscribe("t", 1)
    publisher = world.connect("p")
    publisher.publish("t", b"one", 1)
    world.full = "door"
    publisher.publish("t", b"two", 1, packet_id=2)
    assert world.gateway.is_full
    kept = {key for key in world.disks["door"] if key.startswith("out/")}
    client.send(Ack(Kind.PUBACK, client.messages[0].packet_id))
    world.wait(5.0)
    assert not kept & world.disks["door"].keys(), "what was erased makes room while nothing else fits"
    world.full = ""
    world.wait(5.0)
    assert not world.gateway.is_full
    assert world.gateway.is_idle
    assert any(key.startswith("out/") for key in world.disks["door"])
    world.kill()
    again = returned(world)
    assert again.payloads == [b"two"]


def test_damaged_records_are_reported_and_erased() -> None:
    world = World()
    world.connect("s", properties=KEPT).subscribe("t", 1)
    key = next(key for key in world.disks["door"] if key.startswith("session/"))
    world.disks["door"][key] = world.disks["door"][key][:-1] + b"?"
    world.kill()
    assert [report.facts["records"] for report in world.reports if report.event == "MQTT store damaged"] == [1]
    assert key not in world.disks["door"]
    assert not returned(world).connack.session_present


@pytest.mark.parametrize(("terms", "comes"), [((), False), ((("late-ms", "60000"),), True)])
def test_what_is_too_late_for_its_subscription_is_not_sent_again(
    terms: tuple[tuple[str, str], ...], comes: bool
) -> None:
    world = World()
    client = world.connect("s", properties=KEPT)
    client.subscribe("t", 1, properties={"user": (("max-delay-ms", "3000"), *terms)})
    world.connect("p").publish("t", b"x", 1)
    assert client.payloads == [b"x"]
    world.kill()
    world.wait(5.0)
    assert set(returned(world).payloads) == ({b"x"} if comes else set())  # of QoS 1 it may come twice


def test_messages_of_qos_2_from_several_sessions_of_a_client_are_not_taken_for_one() -> None:
    world = World()
    client = world.connect("s", properties=KEPT)
    client.subscribe("t", 2)
    for payload in (b"one", b"two"):
        publisher = world.connect("p")
        publisher.publish("t", payload, 2)
        publisher.break_off()
        world.wait(6.0)
    assert client.payloads == [b"one", b"two"]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_retained_message_may_be_older_than_a_subscription_allows_of_others(qos: int) -> None:
    world = World()
    world.connect("p").publish("t", b"x", 1, retain=True)
    world.wait(5.0)
    client = world.connect("s", properties=KEPT)
    client.subscribe("t", qos, properties={"user": (("max-delay-ms", "1000"),)})
    assert client.payloads == [b"x"]
