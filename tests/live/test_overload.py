"""A link that is offered more than it can carry: the backlog waits in the broker's queue, and the dearest comes."""

from collections import Counter

import pytest
from benchmarks.live_load import shaped
from benchmarks.live_overload_counting import Event, outcome_of
from benchmarks.live_overload_peers import _mqtt_packet
from benchmarks.live_peers_protocols import _mqtt
from tests.live.conftest import Place, run, running, until

from tidings.live import Delivery, connect
from tidings.protocol import BrokerSettings

BURST = 200
ROOM = 60
WINDOW = BrokerSettings(name="a").window


def test_what_a_link_cannot_carry_waits_in_the_queue_and_the_most_valuable_is_kept(place: Place) -> None:
    """The link stands still while the burst comes, so nothing here depends on how fast the machine is."""

    async def work() -> None:
        network = place.write("a", more=f"[limits]\nqueued_client = {ROOM}")
        got: Counter[int] = Counter()

        def count(delivery: Delivery) -> None:
            assert not delivery.late
            got[int(delivery.attributes["value"])] += 1

        with shaped(place.ports["a"], bytes_per_s=10e6) as link:
            async with (
                running(network) as nodes,
                connect(place.address("a"), name="source", max_in_flight=BURST) as source,
                connect(f"127.0.0.1:{link.port}", name="sink") as sink,
            ):
                for value in (1, 3):
                    await sink.subscribe(f"value = {value}", price=float(value), callback=count)
                outbox = nodes["a"].machine.clients["sink"].outbox
                with link.paused():
                    for number in range(BURST):
                        await source.offer({"value": 1 + 2 * (number % 2)}, payload=bytes(1_000), lifetime_s=600.0)
                    await source.flush()
                    assert outbox.under_way <= WINDOW
                    assert outbox.queued == ROOM
                dropped = nodes["a"].machine.counts["full"]
                await until(lambda: outbox.is_empty)
                await until(lambda: got.total() == BURST - dropped)
        assert dropped >= BURST - ROOM - WINDOW
        assert got[3] > 4 * got[1]

    run(work())


def test_the_limits_of_an_overload() -> None:
    # Ten events a second for 12 s, of which a link of five a second carries every other one; later all are on time.
    events = [
        Event(number / 10, 1.0, 1 + number % 3, number / 10 + (0.5 if number % 2 or number >= 120 else 9.0))
        for number in range(200)
    ]
    found = outcome_of(2.0, events, 0.0, 12.0, 8.0, 5.0, 1.0)
    assert found.on_time == pytest.approx(0.5)
    assert found.on_time_limit == pytest.approx(0.5)
    assert found.value == pytest.approx(0.5)
    assert found.value_limit == pytest.approx((20 * 3 + 10 * 2) / 120)
    assert found.recovery_s == pytest.approx(0.0)
    assert outcome_of(2.0, events[:120], 0.0, 12.0, 8.0, 5.0, 1.0).recovery_s is None


@pytest.mark.parametrize("size", [0, 127, 128, 1_000, 20_000])
def test_packets_of_a_peer_are_taken_apart_wherever_the_bytes_are_cut(size: int) -> None:
    packet = _mqtt(0x32, bytes(size))
    data = packet + _mqtt(0x40, b"\x00\x01")
    assert _mqtt_packet(data, 0) == (0x32, bytes(size), len(packet))
    assert _mqtt_packet(data, len(packet)) == (0x40, b"\x00\x01", len(data))
    assert all(_mqtt_packet(packet[:cut], 0) is None for cut in {0, 1, len(packet) // 2, len(packet) - 1})
