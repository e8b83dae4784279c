"""Processes that die at any moment, connections that break at any moment: QoS 1 loses nothing, QoS 2 doubles nothing.

Clients keep to the standard: they keep their state, and send again what was not confirmed. Both disks take commits when
the dice say so, one before the other, and of a commit under way when the process dies either all or nothing is there.
"""

import random
from collections import Counter

import pytest
from tests.mqtt.world import Client, World

from tidings.mqtt._packets import Ack, Kind, Publish

KEPT = {"session_expiry_s": 600}
MESSAGES = 30


class Publisher:
    """A client that publishes numbered messages, and sends again what was not confirmed."""

    def __init__(self, world: World, qos: int) -> None:
        self.world = world
        self.qos = qos
        self.sent = 0
        self.inflight: dict[int, bytes | None] = {}
        self.client: Client | None = None
        self.seen = 0

    def connect(self) -> None:
        self.client = self.world.connect(f"p{self.qos}", clean_start=not self.sent, properties=KEPT)
        self.seen = 0
        for number, payload in list(self.inflight.items()):
            if payload is None:
                self.client.send(Ack(Kind.PUBREL, number))
            else:
                self._publish(number, payload, dup=True)

    def publish(self) -> None:
        self.sent += 1
        number = next(each for each in range(1, 100) if each not in self.inflight)
        self.inflight[number] = b"%d" % self.sent
        self._publish(number, b"%d" % self.sent)

    def _publish(self, number: int, payload: bytes, *, dup: bool = False) -> None:
        assert self.client is not None
        self.client.send(Publish(topic=f"t{self.qos}", payload=payload, qos=self.qos, packet_id=number, dup=dup))

    def look(self) -> None:
        """Answer what has come."""
        assert self.client is not None
        while self.seen < len(self.client.got):
            packet = self.client.got[self.seen]
            self.seen += 1
            if not isinstance(packet, Ack):
                continue
            assert packet.reason in (0, 0x92), packet
            if packet.kind in (Kind.PUBACK, Kind.PUBCOMP):
                self.inflight.pop(packet.packet_id, None)
            elif packet.kind is Kind.PUBREC and packet.packet_id in self.inflight:
                self.inflight[packet.packet_id] = None
                if self.client.is_open:
                    self.client.send(Ack(Kind.PUBREL, packet.packet_id))


class Subscriber:
    """A client that keeps which numbers of QoS 2 it has received."""

    def __init__(self, world: World, qos: int) -> None:
        self.world = world
        self.qos = qos
        self.got: list[bytes] = []
        self.numbers: set[int] = set()
        self.client: Client | None = None
        self.seen = 0

    def connect(self) -> None:
        is_first = self.client is None
        self.client = self.world.connect(f"s{self.qos}", clean_start=is_first, properties=KEPT)
        self.seen = 0
        if is_first:
            assert self.client.subscribe(f"t{self.qos}", self.qos) == self.qos
        else:
            assert self.client.connack.session_present

    def look(self) -> None:
        """Answer what has come."""
        assert self.client is not None
        while self.seen < len(self.client.got):
            packet = self.client.got[self.seen]
            self.seen += 1
            answer = None
            if isinstance(packet, Publish):
                if packet.qos == 1 or packet.packet_id not in self.numbers:
                    self.got.append(packet.payload)
                answer = Ack(Kind.PUBACK if packet.qos == 1 else Kind.PUBREC, packet.packet_id)
                if packet.qos == 2:
                    self.numbers.add(packet.packet_id)
            elif isinstance(packet, Ack) and packet.kind is Kind.PUBREL:
                self.numbers.discard(packet.packet_id)
                answer = Ack(Kind.PUBCOMP, packet.packet_id)
            if answer is not None and self.client.is_open:
                self.client.send(answer)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_dies_nothing_is_lost_and_qos_2_comes_once(seed: int) -> None:
    dice = random.Random(seed)
    world = World()
    publishers, subscribers = [Publisher(world, qos) for qos in (1, 2)], [Subscriber(world, qos) for qos in (1, 2)]
    everybody: list[Publisher | Subscriber] = [*subscribers, *publishers]
    for each in everybody:
        each.connect()
    world.is_slow = True
    kills = 0
    while any(each.sent < MESSAGES for each in publishers):
        step = dice.random()
        if step < 0.5:
            publisher = dice.choice(publishers)
            if publisher.sent < MESSAGES:
                publisher.publish()
        elif step < 0.8:
            world.sync(*dice.choice([("door",), ("broker",), ("broker", "door")]))
            world.settle()
        elif step < 0.9:
            one = dice.choice(everybody)
            if one.client is not None and one.client.is_open and dice.random() < 0.5:
                one.client.break_off()
        elif step < 0.93:
            kills += 1
            world.kill(*(who for who in ("broker", "door") if dice.random() < 0.5))
        else:
            world.wait(dice.random() * 0.3)
        for each in everybody:
            if dice.random() < 0.7:
                each.look()
            if each.client is not None and not each.client.is_open and dice.random() < 0.5:
                world.is_slow = False  # who connects is answered
                each.connect()
                world.is_slow = True
    world.is_slow = False
    for _ in range(60):
        world.wait(1.0)
        for each in everybody:
            each.look()
            if each.client is not None and not each.client.is_open:
                each.connect()
        if not any(each.inflight for each in publishers):
            break
    world.wait(30.0)
    for each in everybody:
        each.look()
    wanted = {b"%d" % number for number in range(1, MESSAGES + 1)}
    assert set(subscribers[0].got) == wanted, f"after {kills} kills"
    assert Counter(subscribers[1].got) == Counter(wanted), f"after {kills} kills"
