"""The gateway without I/O, by the statements of the MQTT 5 standard."""

import pytest
from tests.mqtt.world import SECOND, World

from tidings.mqtt._packets import (
    Ack,
    Connect,
    Disconnect,
    Kind,
    Ping,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Unsubscribe,
    Wanted,
    Will,
)
from tidings.protocol.node import Token

VERSIONS = pytest.mark.parametrize("version", [4, 5])


@VERSIONS
def test_a_message_comes_to_its_subscriber(version: int) -> None:
    world = World()
    one, other = world.connect("one", version=version), world.connect("other", version=version)
    assert other.subscribe("a/+") == 0
    one.publish("a/b", b"first")
    one.publish("b/b", b"other")
    assert [(each.topic, each.payload, each.qos) for each in other.messages] == [("a/b", b"first", 0)]
    assert one.messages == []


def test_3_1_0_1_the_first_packet_is_connect() -> None:
    world = World()
    client = world.open()
    client.send(Ping(Kind.PINGREQ))
    assert not client.is_open
    assert client.got == []


def test_3_1_0_2_a_second_connect_is_a_protocol_error() -> None:
    world = World()
    client = world.connect()
    client.send(Connect(client_id="c"))
    assert client.all(Disconnect)[0].reason == Reason.PROTOCOL_ERROR
    assert not client.is_open


def test_3_1_0_2_its_version_changes_nothing() -> None:
    client = World().connect(version=4)
    client.send(Connect(client_id="c", version=5))
    assert client.got == [client.connack], "MQTT 3.1.1 knows no DISCONNECT from a server"
    assert not client.is_open


def test_3_1_3_6_a_client_without_identifier_is_given_one() -> None:
    world = World()
    one, other = world.connect(""), world.connect("")
    names = {client.connack.properties["assigned_client_id"] for client in (one, other)}
    assert len(names) == 2


def test_3_1_3_8_of_311_a_kept_session_needs_an_identifier() -> None:
    world = World()
    client = world.connect("", version=4, clean_start=False)
    assert client.connack.reason == 2
    assert not client.is_open


def test_3_1_4_3_the_latest_connection_takes_over() -> None:
    world = World()
    first = world.connect("c", properties={"session_expiry_s": 100})
    first.subscribe("a", 1)
    second = world.connect("c", clean_start=False, properties={"session_expiry_s": 100})
    assert first.all(Disconnect)[0].reason == Reason.SESSION_TAKEN_OVER
    assert not first.is_open
    assert second.connack.session_present
    world.wait(1.0)
    second.publish("a", b"mine")
    assert second.payloads == [b"mine"]


def test_3_1_2_24_packets_that_are_longer_than_the_client_takes_are_not_sent() -> None:
    world = World()
    client = world.connect("c", properties={"maximum_packet_size": 40})
    client.subscribe("a", 1)
    other = world.connect("p")
    other.publish("a", b"x" * 100, 1)
    other.publish("a", b"short", 1, packet_id=2)
    assert client.payloads == [b"short"]
    client.send(Ack(Kind.PUBACK, client.messages[0].packet_id))


def test_3_1_2_22_a_silent_client_is_dismissed() -> None:
    world = World()
    client, other = world.connect("c", keep_alive_s=10), world.connect("d", keep_alive_s=10)
    world.wait(9.0)
    other.send(Ping(Kind.PINGREQ))
    world.wait(7.0)
    assert client.all(Disconnect)[0].reason == Reason.KEEP_ALIVE_TIMEOUT
    assert other.is_open
    assert other.all(Ping) == [Ping(Kind.PINGRESP)]


def test_3_1_2_8_the_will_is_published_when_the_connection_breaks() -> None:
    world = World()
    other = world.connect("other")
    other.subscribe("will/#", 1)
    client = world.connect("c", will=Will(topic="will/c", payload=b"gone", qos=1))
    client.break_off()
    world.wait(1.0)
    assert other.payloads == [b"gone"]


def test_3_1_2_10_the_will_is_dropped_by_a_disconnect() -> None:
    world = World()
    other = world.connect("other")
    other.subscribe("will/#", 1)
    for name, reason in (("c", 0), ("d", Reason.DISCONNECT_WITH_WILL)):
        client = world.connect(name, will=Will(topic=f"will/{name}", payload=name.encode()))
        client.send(Disconnect(reason))
        assert not client.is_open
    world.wait(1.0)
    assert other.payloads == [b"d"]


def test_3_1_3_9_a_client_that_is_back_in_time_takes_its_delayed_will_back() -> None:
    world = World()
    other = world.connect("other")
    other.subscribe("will/#")
    will = Will(topic="will/c", payload=b"gone", properties={"will_delay_s": 5})
    facts = {"will": will, "properties": {"session_expiry_s": 100}}
    world.connect("c", **facts).break_off()
    world.wait(3.0)
    client = world.connect("c", clean_start=False, **facts)
    world.wait(10.0)
    assert other.payloads == []
    client.break_off()
    world.wait(4.0)
    assert other.payloads == []
    world.wait(2.0)
    assert other.payloads == [b"gone"]


@VERSIONS
def test_4_3_2_qos_1_is_acknowledged_when_the_broker_has_it(version: int) -> None:
    world = World()
    away = world.connect("away", properties={"session_expiry_s": 100})
    away.subscribe("a", 1)
    away.break_off()
    client = world.connect("c", version=version)
    client.publish("warm", b"up", 1, packet_id=1)
    world.is_slow = True
    client.publish("a", b"x", 1, packet_id=7)
    assert [ack.packet_id for ack in client.acks(Kind.PUBACK)] == [1]
    world.sync()
    world.is_slow = False
    world.settle()
    assert [ack.packet_id for ack in client.acks(Kind.PUBACK)] == [1, 7]


@VERSIONS
def test_4_3_3_10_qos_2_is_published_once_however_often_it_is_sent(version: int) -> None:
    world = World()
    client, other = world.connect("c", version=version), world.connect("other", version=version)
    other.subscribe("a", 2)
    client.publish("a", b"x", 2, packet_id=7)
    client.publish("a", b"x", 2, packet_id=7, dup=True)
    assert [ack.packet_id for ack in client.acks(Kind.PUBREC)] == [7, 7]
    client.send(Ack(Kind.PUBREL, 7))
    assert [ack.packet_id for ack in client.acks(Kind.PUBCOMP)] == [7]
    client.publish("a", b"y", 2, packet_id=7)
    assert other.payloads == [b"x", b"y"]
    for message in other.messages:
        other.send(Ack(Kind.PUBREC, message.packet_id))
        other.send(Ack(Kind.PUBCOMP, message.packet_id))
    assert len(other.acks(Kind.PUBREL)) == 2
    assert world.gateway.sessions["other"].deliveries.out == {}


def test_4_3_3_a_release_of_what_was_never_sent_is_answered_not_found() -> None:
    world = World()
    client = world.connect()
    client.send(Ack(Kind.PUBREL, 9), Ack(Kind.PUBREC, 8))
    assert client.acks(Kind.PUBCOMP)[0].reason == Reason.PACKET_IDENTIFIER_NOT_FOUND
    assert client.acks(Kind.PUBREL)[0].reason == Reason.PACKET_IDENTIFIER_NOT_FOUND


def test_4_4_0_1_what_was_not_acknowledged_is_sent_again_as_a_duplicate_in_order() -> None:
    world = World()
    facts = {"properties": {"session_expiry_s": 100}}
    client, other = world.connect("c", **facts), world.connect("p")
    client.subscribe("a", 2)
    for number, qos in ((1, 1), (2, 2), (3, 1)):
        other.publish("a", b"%d" % number, qos, packet_id=number)
    other.send(Ack(Kind.PUBREL, 2))
    numbers = [message.packet_id for message in client.messages]
    client.send(Ack(Kind.PUBREC, numbers[1]))
    client.break_off()
    client = world.connect("c", clean_start=False, **facts)
    assert [(message.payload, message.packet_id, message.dup) for message in client.messages] == [
        (b"1", numbers[0], True),
        (b"3", numbers[2], True),
    ]
    assert [ack.packet_id for ack in client.acks(Kind.PUBREL)] == [numbers[1]]


def test_4_9_0_2_no_more_is_sent_than_the_client_takes_at_once() -> None:
    world = World()
    client, other = world.connect("c", properties={"receive_maximum": 3}), world.connect("p")
    client.subscribe("a", 1)
    for number in range(1, 31):
        other.publish("a", b"%d" % number, 1, packet_id=number)
    assert len(client.messages) == 3
    for number in range(30):
        world.wait(0.5)
        client.send(Ack(Kind.PUBACK, client.messages[number].packet_id))
    world.wait(1.0)
    assert sorted(client.payloads, key=int) == [b"%d" % number for number in range(1, 31)]


@VERSIONS
def test_3_1_2_5_a_kept_session_gets_what_came_while_its_client_was_away(version: int) -> None:
    world = World()
    kept = {"clean_start": False} if version == 4 else {"clean_start": False, "properties": {"session_expiry_s": 500}}
    client, other = world.connect("c", version=version, **kept), world.connect("p")
    assert not client.connack.session_present
    client.subscribe("a/#", 1)
    client.send(Disconnect())
    world.wait(20.0)
    other.publish("a/b", b"kept", 1)
    world.wait(20.0)
    client = world.connect("c", version=version, **kept)
    world.wait(1.0)
    assert client.connack.session_present
    assert client.payloads == [b"kept"]


def test_3_1_2_4_a_clean_start_forgets_the_session() -> None:
    world = World()
    facts = {"properties": {"session_expiry_s": 100}}
    client, other = world.connect("c", **facts), world.connect("p")
    client.subscribe("a/#", 1)
    client.break_off()
    other.publish("a/b", b"lost", 1)
    client = world.connect("c", **facts)
    world.wait(15.0)
    other.publish("a/b", b"not subscribed", 1)
    assert not client.connack.session_present
    assert client.payloads == []


def test_3_1_2_23_a_session_ends_when_its_time_is_over() -> None:
    world = World()
    client = world.connect("c", properties={"session_expiry_s": 10})
    client.subscribe("a/#", 1)
    client.break_off()
    world.wait(11.0)
    client = world.connect("c", clean_start=False)
    assert not client.connack.session_present


def test_a_session_is_kept_for_as_long_as_the_broker_keeps_clients() -> None:
    world = World()
    client = world.connect("c", properties={"session_expiry_s": 100_000})
    assert client.connack.properties["session_expiry_s"] == 600


def test_3_14_2_2_a_session_cannot_be_made_to_stay_by_disconnect() -> None:
    world = World()
    client = world.connect()
    client.send(Disconnect(0, {"session_expiry_s": 10}))
    assert client.all(Disconnect)[0].reason == Reason.PROTOCOL_ERROR


def test_3_3_1_5_a_retained_message_is_given_to_who_subscribes_later() -> None:
    world = World()
    one = world.connect("one")
    one.publish("state/a", b"1", 1, retain=True)
    one.publish("state/a", b"2", 1, retain=True, packet_id=2)
    one.publish("state/b", b"3", 1, retain=True, packet_id=3)
    world.wait(1.0)
    other = world.connect("other")
    other.subscribe("state/#", 1)
    assert sorted((each.topic, each.payload, each.retain) for each in other.messages) == [
        ("state/a", b"2", True),
        ("state/b", b"3", True),
    ]
    one.publish("state/a", b"4", 1, retain=True, packet_id=4)
    assert (other.messages[-1].payload, other.messages[-1].retain) == (b"4", False)  # [MQTT-3.3.1-12]


def test_3_3_1_6_an_empty_payload_removes_the_retained_message() -> None:
    world = World()
    one = world.connect("one")
    one.publish("a", b"1", 1, retain=True)
    one.publish("a", b"", 1, retain=True, packet_id=2)
    world.wait(1.0)
    other = world.connect("other")
    other.subscribe("a", 1)
    assert other.messages == []
    assert len(world.gateway.retained) == 0


def test_3_3_1_9_to_11_retain_handling() -> None:
    world = World()
    one = world.connect("one")
    one.publish("a", b"1", 1, retain=True)
    other = world.connect("other")
    other.subscribe("a", 0, retain_handling=2)
    assert other.messages == []
    other.subscribe("a", 0, retain_handling=1)
    assert other.messages == []
    other.subscribe("a", 0, retain_handling=0)
    assert other.payloads == [b"1"]
    third = world.connect("third")
    third.subscribe("a", 0, retain_handling=1)
    assert third.payloads == [b"1"]


def test_3_3_1_13_retain_as_published() -> None:
    world = World()
    other, one = world.connect("other"), world.connect("one")
    other.subscribe("a", 0, retain_as_published=True)
    one.publish("a", b"1", retain=True)
    assert other.messages[0].retain


def test_retained_messages_survive_the_process() -> None:
    world = World()
    world.connect("one").publish("a", b"1", 1, retain=True)
    world.wait(1.0)
    world.kill()
    other = world.connect("other")
    other.subscribe("a")
    assert other.payloads == [b"1"]


def test_3_8_3_3_no_local_keeps_a_clients_own_messages_from_it() -> None:
    world = World()
    client, other = world.connect("c"), world.connect("other")
    client.subscribe("a", 0, no_local=True)
    client.publish("a", b"mine")
    other.publish("a", b"theirs")
    assert client.payloads == [b"theirs"]


def test_3_8_3_4_a_shared_subscription_cannot_be_no_local() -> None:
    world = World()
    client = world.connect()
    wanted = Wanted(topic_filter="$share/g/a", no_local=True)
    client.send(Subscribe(packet_id=1, wanted=(wanted,)))
    assert client.all(Disconnect)[0].reason == Reason.PROTOCOL_ERROR


def test_4_8_2_a_shared_subscription_gives_each_message_to_one_of_the_group() -> None:
    world = World()
    workers = [world.connect(f"worker-{number}") for number in range(3)]
    watcher = world.connect("watcher")
    for each in workers:
        each.subscribe("$share/g/job/#", 1)
    watcher.subscribe("job/#", 1)
    other = world.connect("p")
    for number in range(1, 31):
        other.publish("job/x", b"%d" % number, 1, packet_id=number)
    counts = [len(each.messages) for each in workers]
    assert counts == [10, 10, 10]
    assert len({payload for each in workers for payload in each.payloads}) == 30
    assert len(watcher.messages) == 30
    workers[0].break_off()
    for number in range(1, 11):
        other.publish("job/x", b"again%d" % number, 1, packet_id=number)
    assert sum(len(each.messages) for each in workers) == 40


def test_3_8_4_7_subscription_identifiers_come_with_the_message() -> None:
    world = World()
    client, other = world.connect("c"), world.connect("p")
    client.subscribe("a/#", 0, properties={"subscription_ids": (42,)})
    other.publish("a/b")
    assert client.messages[0].properties["subscription_ids"] == (42,)


def test_3_3_2_7_topic_aliases_both_ways() -> None:
    world = World()
    client, other = world.connect("c", properties={"topic_alias_maximum": 5}), world.connect("p")
    client.subscribe("long/#")
    other.publish("long/topic", b"1", properties={"topic_alias": 3})
    other.publish("", b"2", properties={"topic_alias": 3})
    first, second = client.messages
    assert (first.topic, first.properties["topic_alias"]) == ("long/topic", 1)
    assert (second.topic, second.properties["topic_alias"], second.payload) == ("", 1, b"2")


@pytest.mark.parametrize(("alias", "reason"), [(33, Reason.TOPIC_ALIAS_INVALID), (0, Reason.TOPIC_ALIAS_INVALID)])
def test_3_3_2_9_an_alias_beyond_the_maximum_is_invalid(alias: int, reason: Reason) -> None:
    world = World()
    client = world.connect()
    client.publish("a", properties={"topic_alias": alias})
    assert client.all(Disconnect)[0].reason == reason


def test_3_3_2_an_alias_that_stands_for_nothing_is_a_protocol_error() -> None:
    world = World()
    client = world.connect()
    client.publish("", properties={"topic_alias": 3})
    assert client.all(Disconnect)[0].reason == Reason.PROTOCOL_ERROR


@pytest.mark.parametrize("topic", ["a/#", "+", "a/+/b"])
def test_3_3_2_2_a_topic_has_no_wildcards(topic: str) -> None:
    world = World()
    client = world.connect()
    client.publish(topic)
    assert client.all(Disconnect)[0].reason == Reason.TOPIC_NAME_INVALID


@pytest.mark.parametrize("pattern", ["a/#/b", "a+", "#a", "", "$share/g", "$share//a", "$share/+/a"])
def test_4_7_1_a_topic_filter_that_is_none_is_refused(pattern: str) -> None:
    world = World()
    assert world.connect("c").subscribe(pattern) == Reason.TOPIC_FILTER_INVALID
    assert world.connect("d", version=4).subscribe(pattern) == 0x80


def test_3_8_4_6_one_suback_answers_all_filters_in_order() -> None:
    world = World()
    client = world.connect()
    filters = ("a", "#/", "b/#")
    wanted = tuple(Wanted(topic_filter=each, qos=number) for number, each in enumerate(filters))
    client.send(Subscribe(packet_id=5, wanted=wanted))
    world.wait(1.0)
    assert [(each.packet_id, each.reasons) for each in client.all(Suback)] == [(5, (0, 0x8F, 2))]


def test_3_10_4_unsubscribe_ends_a_subscription() -> None:
    world = World()
    client, other = world.connect("c"), world.connect("p")
    client.subscribe("a")
    client.send(Unsubscribe(packet_id=2, topic_filters=("a", "b")))
    world.wait(1.0)
    answer = client.all(Suback)[-1]
    assert (answer.kind, answer.reasons) == (Kind.UNSUBACK, (0, Reason.NO_SUBSCRIPTION_EXISTED))
    other.publish("a")
    assert client.messages == []


def test_3_3_4_7_more_than_the_receive_maximum_is_an_error() -> None:
    world = World(receive_maximum=4)
    client = world.connect()
    for number in range(1, 33):
        client.publish("a", b"x", 2, packet_id=number)
    assert client.is_open  # paho sends more than it may after a reconnect
    client.publish("a", b"x", 2, packet_id=33)
    assert client.all(Disconnect)[0].reason == Reason.RECEIVE_MAXIMUM_EXCEEDED


def test_3_3_2_4_a_payload_that_says_it_is_text_has_to_be() -> None:
    world = World()
    client = world.connect()
    client.publish("a", b"\xff", 1, properties={"payload_format": 1})
    assert client.acks(Kind.PUBACK)[0].reason == Reason.PAYLOAD_FORMAT_INVALID


def test_3_3_2_6_the_expiry_is_what_is_left_of_it() -> None:
    world = World()
    facts = {"properties": {"session_expiry_s": 500}}
    client, other = world.connect("c", **facts), world.connect("p")
    client.subscribe("a", 1)
    client.break_off()
    other.publish("a", b"long", 1, properties={"message_expiry_s": 100})
    other.publish("a", b"short", 1, packet_id=2, properties={"message_expiry_s": 10})
    world.wait(40.0)
    client = world.connect("c", clean_start=False, **facts)
    world.wait(1.0)
    (message,) = client.messages
    assert message.payload == b"long"
    assert 57 <= message.properties["message_expiry_s"] <= 60


def test_4_13_1_1_authentication_methods_are_refused() -> None:
    world = World()
    client = world.connect("c", properties={"authentication_method": "SCRAM-SHA-256"})
    assert client.connack.reason == Reason.BAD_AUTHENTICATION_METHOD


def test_4_10_request_and_response() -> None:
    world = World()
    asker = world.connect("asker", properties={"request_response_information": 1})
    answerer = world.connect("answerer")
    topic = asker.connack.properties["response_information"] + "/1"
    asker.subscribe(topic)
    answerer.subscribe("question")
    asker.publish("question", b"?", properties={"response_topic": topic, "correlation_data": b"\0\xff"})
    asked = answerer.messages[0]
    given = {"correlation_data": asked.properties["correlation_data"]}
    answerer.publish(asked.properties["response_topic"], b"!", properties=given)
    assert (asker.messages[0].payload, asker.messages[0].properties["correlation_data"]) == (b"!", b"\0\xff")


def test_all_properties_of_a_message_come_as_they_were() -> None:
    world = World()
    client, other = world.connect("c"), world.connect("p")
    client.subscribe("a", 2)
    properties = {
        "payload_format": 1,
        "content_type": "text/plain",
        "response_topic": "r",
        "correlation_data": b"\1",
        "user": (("k", "1"), ("k", "2"), ("mqtt_qos", "odd"), ("", "empty")),
    }
    other.publish("a", b"text", 2, properties=properties)
    assert dict(client.messages[0].properties) == properties


def test_a_token_is_the_password_of_a_client() -> None:
    world = World(
        admission={"tokens": (Token(identity="c*", secret="sesame"), Token(identity="mqtt-retained@b", secret="r"))},
        has_tokens=True,
        retaining_token="r",
    )
    assert world.connect("c1", username="any", password=b"sesame").connack.reason == 0
    assert world.connect("c1", username="any", password=b"wrong").connack.reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert world.connect("d", username="any", password=b"sesame").connack.reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert world.connect("c2").connack.reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert world.connect("c2", version=4).connack.reason == 4


def test_a_wrong_password_takes_nothing_over() -> None:
    world = World()
    client = world.connect("c", username="u", password=b"mine", properties={"session_expiry_s": 100})
    client.subscribe("a", 1)
    assert world.connect("c", username="u", password=b"theirs").connack.reason == Reason.BAD_USER_NAME_OR_PASSWORD
    world.wait(1.0)
    assert client.is_open
    client.publish("a", b"still here")
    assert client.payloads == [b"still here"]


def test_a_client_that_floods_is_not_read_from() -> None:
    world = World()
    away = world.connect("away", properties={"session_expiry_s": 100})
    away.subscribe("a", 1)
    away.break_off()
    client = world.connect()
    client.publish("a", b"x")
    world.is_slow = True
    for _ in range(40):
        client.send(*(Publish(topic="a", payload=b"x") for _ in range(50)))
    assert client.reads == [False]
    world.is_slow = False
    world.wait(10.0)
    assert client.reads[-1] is True
    assert client.is_open


def test_a_subscription_with_filter_and_terms() -> None:
    world = World()
    client, other = world.connect("c"), world.connect("p")
    terms = (("filter", "price > 10 AND venue = 'X'"), ("max-delay-ms", "2000"), ("price", "3"), ("report", "all"))
    assert client.subscribe("quotes/#", 1, properties={"user": terms}) == 1
    as_json = {"content_type": "application/json", "user": (("venue", "X"),)}
    other.publish("quotes/a", b'{"price": 12.5, "deep": {"x": 1}, "venue": "Y"}', properties=as_json)
    other.publish("quotes/a", b'{"price": 2.5}', properties=as_json)
    other.publish("quotes/a", b'{"price": 99}', properties={"content_type": "application/json"})
    (message,) = client.messages
    facts = dict(message.properties["user"])
    assert facts["late"] == "false"
    assert 0.0 <= float(facts["age-ms"]) < 1000.0
    assert 1000.0 < float(facts["deadline-left-ms"]) <= 2000.0


@pytest.mark.parametrize(
    "terms",
    [
        ("filter", "price >"),
        ("filter", "a) OR (b"),
        ("price", "-1"),
        ("max-delay-ms", "soon"),
        ("order", "odd"),
        ("conflate", "topic,"),
        ("late", "soon"),
    ],
)
def test_terms_that_are_none_are_refused_with_a_reason(terms: tuple[str, str]) -> None:
    world = World()
    client = world.connect()
    assert client.subscribe("a", properties={"user": (terms,)}) == Reason.IMPLEMENTATION_SPECIFIC
    assert client.all(Suback)[-1].properties["reason_string"]
    assert client.is_open


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_after_a_reconnect_the_latest_of_each_topic_comes_and_nothing_older(qos: int) -> None:
    world = World()
    facts = {"properties": {"session_expiry_s": 500}}
    client, other = world.connect("c", **facts), world.connect("p")
    assert client.subscribe("quotes/#", qos, properties={"user": (("conflate", "topic"),)}) == qos
    client.break_off()
    for number in range(1, 41):
        other.publish(f"quotes/{number % 2}", b"%d" % number, 1, packet_id=number)
    world.wait(30.0)
    world.kill()  # and the broker starts again
    client = world.connect("c", clean_start=False, **facts)
    world.wait(5.0)
    assert sorted(client.payloads) == [b"39", b"40"]


def test_a_client_that_confirms_slowly_gets_the_latest() -> None:
    world = World()
    client, other = world.connect("c", properties={"receive_maximum": 1}), world.connect("p")
    client.subscribe("quotes/#", 1, properties={"user": (("conflate", "topic"),)})
    for number in range(200):
        other.publish("quotes/x", b"%d" % number, 1, packet_id=number + 1)
    while len(client.messages) > len(client.acks(Kind.PUBACK)):
        before = len(client.messages)
        client.send(Ack(Kind.PUBACK, client.messages[-1].packet_id))
        world.wait(5.0)
        if len(client.messages) == before:
            break
    assert client.payloads[-1] == b"199"
    assert len(client.payloads) < 20
    account = world.machine.accounts.balances()[next(iter(world.machine.accounts.balances()))].known
    assert account.replaced > 150
    assert (account.matched, account.lost, account.under_way) == (200, 0, 0)


def test_json_topics_need_no_content_type() -> None:
    world = World(json_topics=("sensors/#",))
    client, other = world.connect("c"), world.connect("p", version=4)
    client.subscribe("#", 0, properties={"user": (("filter", "celsius > 30"),)})
    other.publish("sensors/1", b'{"celsius": 31}')
    other.publish("others/1", b'{"celsius": 31}')
    other.publish("sensors/1", b"not JSON")
    assert [message.topic for message in client.messages] == ["sensors/1"]


def test_after_a_reconnect_only_what_is_on_time_comes_and_the_urgent_first() -> None:
    world = World(strategy="triage")
    facts = {"properties": {"session_expiry_s": 500}}
    client, other = world.connect("c", **facts), world.connect("p")
    client.subscribe("bulk/#", 1)
    client.subscribe("alarm/#", 1)
    client.break_off()
    for number in range(1, 61):  # one a second, each for 2 s
        other.publish("bulk/x", b"stale", 1, packet_id=number, properties={"message_expiry_s": 2})
        world.wait(0.8)
    for number in range(100, 140):
        other.publish("bulk/x", b"bulk", 1, packet_id=number, properties={"message_expiry_s": 300})
    other.publish("alarm/x", b"alarm", 1, packet_id=99, properties={"message_expiry_s": 20})
    world.wait(4.0)
    client = world.connect("c", clean_start=False, properties={"session_expiry_s": 500, "receive_maximum": 1})
    for number in range(41):
        world.wait(0.1)
        client.send(Ack(Kind.PUBACK, client.messages[number].packet_id))
    assert client.payloads[0] == b"alarm"
    assert sorted(client.payloads[1:]) == [b"bulk"] * 40


@pytest.mark.parametrize("rate_per_s", [10, pytest.param(100, marks=pytest.mark.full)])
@pytest.mark.parametrize("strategy", ["lookahead", "triage"])
def test_after_60_s_away_the_first_message_is_in_time_and_the_last_stale_one_never_comes(
    rate_per_s: int, strategy: str
) -> None:
    world = World(strategy=strategy)
    kept = {"session_expiry_s": 300}
    client, other = world.connect("c", properties=kept), world.connect("p")
    client.subscribe("quotes", 1)
    client.break_off()
    sent_ns: dict[bytes, int] = {}
    for number in range(60 * rate_per_s):  # each for 2 s
        payload = b"%d" % number
        sent_ns[payload] = world.now_ns
        facts = {"packet_id": number % 60_000 + 1, "properties": {"message_expiry_s": 2}}
        other.send(Publish(topic="quotes", payload=payload, qos=1, **facts))
        world.wait(1.0 / rate_per_s)
    back_ns = world.now_ns
    client = world.connect("c", clean_start=False, properties=kept)
    answered = 0
    for _ in range(100):  # by then the last one has expired
        world.wait(0.05)
        client.send(*(Ack(Kind.PUBACK, each.packet_id) for each in client.messages[answered:]))
        answered = len(client.messages)
    wanted = [payload for payload, at_ns in sent_ns.items() if back_ns + SECOND // 10 < at_ns + 2 * SECOND]
    possible = [payload for payload, at_ns in sent_ns.items() if back_ns < at_ns + 2 * SECOND]
    assert set(wanted) <= set(client.payloads) <= set(possible)
    assert len(client.payloads) == len(set(client.payloads)) > 1.8 * rate_per_s
