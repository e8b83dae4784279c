"""Packets: what is written is read, and what is malformed is refused with the reason that the standard asks for."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from tidings.mqtt._codec import Reader, encode, encode_properties, varint
from tidings.mqtt._packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    PacketError,
    Ping,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Unsubscribe,
    Wanted,
    Will,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NUMBER = st.integers(1, 0xFFFF)
USER = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3).map(tuple)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "payload_format": st.integers(0, 1),
        "message_expiry_s": st.integers(0, 2**32 - 1),
        "content_type": TEXT,
        "response_topic": TEXT,
        "correlation_data": st.binary(max_size=20),
        "user": USER,
    },
)
REASON = st.fixed_dictionaries({}, optional={"reason_string": TEXT, "user": USER})
ACKS = st.sampled_from([Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP])
WILL = st.builds(
    Will, topic=TEXT, payload=st.binary(max_size=20), qos=st.integers(0, 2), retain=st.booleans(), properties=MESSAGE
)
PACKETS: st.SearchStrategy[Packet] = st.one_of(
    st.builds(
        Connect,
        client_id=TEXT,
        clean_start=st.booleans(),
        keep_alive_s=st.integers(0, 0xFFFF),
        will=st.none() | WILL,
        username=st.none() | TEXT,
        password=st.none() | st.binary(max_size=20),
        properties=st.fixed_dictionaries({}, optional={"session_expiry_s": st.integers(0, 2**32 - 1), "user": USER}),
    ),
    st.builds(Connack, reason=st.integers(0, 255), session_present=st.booleans(), properties=REASON),
    st.builds(
        Publish,
        topic=TEXT,
        payload=st.binary(max_size=300),
        qos=st.integers(1, 2),
        retain=st.booleans(),
        dup=st.booleans(),
        packet_id=NUMBER,
        properties=MESSAGE,
    ),
    st.builds(Ack, ACKS, NUMBER, st.integers(0, 255), REASON),
    st.builds(
        Subscribe,
        packet_id=NUMBER,
        wanted=st.lists(
            st.builds(
                Wanted,
                topic_filter=TEXT,
                qos=st.integers(0, 2),
                no_local=st.booleans(),
                retain_as_published=st.booleans(),
                retain_handling=st.integers(0, 2),
            ),
            min_size=1,
            max_size=3,
        ).map(tuple),
        properties=st.fixed_dictionaries({}, optional={"subscription_ids": st.tuples(st.integers(1, 268_435_455))}),
    ),
    st.builds(Suback, st.sampled_from([Kind.SUBACK, Kind.UNSUBACK]), NUMBER, st.tuples(st.integers(0, 255)), REASON),
    st.builds(Unsubscribe, packet_id=NUMBER, topic_filters=st.tuples(TEXT)),
    st.builds(Ping, st.sampled_from([Kind.PINGREQ, Kind.PINGRESP])),
    st.builds(Disconnect, st.integers(0, 255), REASON),
    st.builds(Auth, st.integers(0, 255), REASON),
)


def read(data: bytes, version: int = 5) -> Packet | None:
    reader = Reader(version=version)
    reader.feed(data)
    return reader.next()


@given(PACKETS, st.integers(1, 5))
def test_what_is_written_is_read_in_whatever_pieces_it_comes(packet: Packet, step: int) -> None:
    data = encode(packet)
    reader = Reader()
    found = []
    for begin in range(0, len(data), step):
        reader.feed(data[begin : begin + step])
        while (each := reader.next()) is not None:
            found.append(each)
    assert found == [packet]


@given(st.binary(max_size=60), st.sampled_from([4, 5]))
def test_whatever_bytes_come_only_packet_errors_are_raised(data: bytes, version: int) -> None:
    reader = Reader(version=version)
    reader.feed(data)
    with contextlib.suppress(PacketError):
        while reader.next() is not None:
            pass


@given(MESSAGE)
def test_against_paho_properties_are_encoded_alike(properties: dict[str, Any]) -> None:
    theirs = PahoProperties(PacketTypes.PUBLISH)
    names = {
        "payload_format": "PayloadFormatIndicator",
        "message_expiry_s": "MessageExpiryInterval",
        "content_type": "ContentType",
        "response_topic": "ResponseTopic",
        "correlation_data": "CorrelationData",
        "user": "UserProperty",
    }
    for name, value in properties.items():
        setattr(theirs, names[name], list(value) if name == "user" else value)
    ours = encode_properties(properties)
    packed = theirs.pack()
    assert len(packed) == len(varint(len(ours))) + len(ours)
    again = PahoProperties(PacketTypes.PUBLISH)
    again.unpack(varint(len(ours)) + ours)
    assert again.json() == theirs.json()


MALFORMED, BROKEN = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR
CONNECT = b"\x00\x04MQTT\x05"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"\x00\x00", MALFORMED, id="packet type 0"),
        pytest.param(b"\x11\x00", MALFORMED, id="MQTT-2.1.3-1 flags of CONNECT"),
        pytest.param(b"\x80\x00", MALFORMED, id="MQTT-3.8.1-1 flags of SUBSCRIBE"),
        pytest.param(b"\xa0\x00", MALFORMED, id="MQTT-3.10.1-1 flags of UNSUBSCRIBE"),
        pytest.param(b"\x60\x02\x00\x01", MALFORMED, id="MQTT-3.6.1-1 flags of PUBREL"),
        pytest.param(b"\xc0\x80\x80\x80\x80\x00", MALFORMED, id="length of five bytes"),
        pytest.param(b"\xc0\x80\x00", MALFORMED, id="MQTT-1.5.5-1 length too long"),
        pytest.param(b"\xc0\x01\x00", MALFORMED, id="bytes after PINGREQ"),
        pytest.param(b"\x36\x00", MALFORMED, id="MQTT-3.3.1-4 QoS 3"),
        pytest.param(b"\x38\x03\x00\x01a", MALFORMED, id="MQTT-3.3.1-2 DUP with QoS 0"),
        pytest.param(b"\x30\x04\x00\x02\xc3\x28", MALFORMED, id="MQTT-1.5.4-1 not UTF-8"),
        pytest.param(b"\x30\x05\x00\x03\xed\xa0\x80", MALFORMED, id="MQTT-1.5.4-1 surrogate"),
        pytest.param(b"\x30\x04\x00\x01\x00\x00", MALFORMED, id="MQTT-1.5.4-2 U+0000"),
        pytest.param(b"\x30\x02\x00\x09", MALFORMED, id="topic longer than the packet"),
        pytest.param(b"\x32\x06\x00\x01a\x00\x00\x00", BROKEN, id="MQTT-2.2.1-3 packet identifier 0"),
        pytest.param(b"\x30\x06\x00\x01a\x02\x11\x00", MALFORMED, id="property of another packet"),
        pytest.param(b"\x30\x05\x00\x01a\x01\x7f", MALFORMED, id="unknown property"),
        pytest.param(b"\x30\x08\x00\x01a\x04\x01\x00\x01\x00", BROKEN, id="property twice"),
        pytest.param(b"\x30\x06\x00\x01a\x02\x01\x02", BROKEN, id="payload format 2"),
        pytest.param(b"\x30\x06\x00\x01a\x02\x0b\x00", BROKEN, id="subscription identifier 0"),
        pytest.param(b"\x10\x0d" + CONNECT + b"\x03\x00\x00\x00\x00\x00", MALFORMED, id="MQTT-3.1.2-3 reserved flag"),
        pytest.param(b"\x10\x0d" + CONNECT + b"\x08\x00\x00\x00\x00\x00", MALFORMED, id="MQTT-3.1.2-11 QoS, no will"),
        pytest.param(b"\x10\x0d" + CONNECT + b"\x1c\x00\x00\x00\x00\x00", MALFORMED, id="MQTT-3.1.2-12 will of QoS 3"),
        pytest.param(
            b"\x10\x0d" + CONNECT + b"\x20\x00\x00\x00\x00\x00", MALFORMED, id="MQTT-3.1.2-13 retain, no will"
        ),
        pytest.param(b"\x10\x10" + CONNECT + b"\x02\x00\x00\x03\x21\x00\x00\x00\x00", BROKEN, id="receive maximum 0"),
        pytest.param(
            b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x00\x00\x00\x00", Reason.UNSUPPORTED_VERSION, id="MQTT-3.1.2-2 version 6"
        ),
        pytest.param(
            b"\x10\x0d\x00\x04MQTX\x05\x02\x00\x00\x00\x00\x00", Reason.UNSUPPORTED_VERSION, id="MQTT-3.1.2-1 name"
        ),
        pytest.param(b"\x82\x03\x00\x01\x00", BROKEN, id="MQTT-3.8.3-2 SUBSCRIBE of nothing"),
        pytest.param(b"\x82\x07\x00\x01\x00\x00\x01a\xc0", MALFORMED, id="MQTT-3.8.3-5 reserved options"),
        pytest.param(b"\x82\x07\x00\x01\x00\x00\x01a\x03", MALFORMED, id="subscription of QoS 3"),
        pytest.param(b"\x82\x07\x00\x01\x00\x00\x01a\x30", BROKEN, id="retain handling 3"),
        pytest.param(b"\xa2\x03\x00\x01\x00", BROKEN, id="MQTT-3.10.3-2 UNSUBSCRIBE of nothing"),
    ],
)
def test_a_malformed_packet_is_refused_with_its_reason(data: bytes, reason: Reason) -> None:
    with pytest.raises(PacketError) as caught:
        read(data)
    assert caught.value.reason is reason


def test_a_packet_that_is_too_long_is_refused_before_it_has_come() -> None:
    reader = Reader(max_packet_bytes=1_000)
    reader.feed(b"\x30\xff\xff\x7f")
    with pytest.raises(PacketError) as caught:
        reader.next()
    assert caught.value.reason is Reason.PACKET_TOO_LARGE


def test_auth_is_reserved_in_311() -> None:
    with pytest.raises(PacketError):
        read(b"\xf0\x00", version=4)
