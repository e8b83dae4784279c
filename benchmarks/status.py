"""What a status costs a broker, and how that grows with its clients and their subscriptions.

A broker in this process, with a store but without sockets, has so many clients with so many subscriptions each; to one
in LADEN of them an event is under way. Printed for each size: the processor time of a snapshot as `tidings status` asks
for it, the first time and again, when only what changed is computed (at best of TIMES); the length of its JSON, the
time that encoding this JSON alone takes (the limit), and the ratio. What grows with the clients is what is under way to
them; the rest is bounded.

Options: ``BENCH_SIZES=1000x1,1000x10``.
"""

import asyncio
import io
import os
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.live_load import free_ports
from tidings.live import read_network
from tidings.live.broker._node import BrokerNode
from tidings.live.operations._logs import Log
from tidings.live.operations._status import snapshot
from tidings.protocol import wire
from tidings.protocol.node import Preamble, joined

SIZES = os.environ.get("BENCH_SIZES", "1000x1,1000x10,3000x1,9000x1").split(",")
LADEN = 10
TIMES = 7


async def _broker(directory: Path, size: int, each: int) -> BrokerNode:
    path = directory / "network.toml"
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    path.write_text(
        f'[network]\nstore = "store"\nsilence = "1 h"\ntimeout = "2 h"\n[[broker]]\nname = "a"\nlisten = "{listen}"\n',
        "utf-8",
    )
    broker = BrokerNode(read_network(path), "a", Log("a", stream=io.StringIO()))
    broker.open()
    while not broker.machine.is_ready or not broker.machine._is_alive:
        await asyncio.sleep(0.01)
    for number in range(size):
        _come(broker, f"c{number}", [f"n = {number} AND m >= {other}" for other in range(each)])
    _come(broker, "p", ["FALSE"])
    _say(broker, "p", wire.Advertise(broker.machine.epoch, 2, "all", "TRUE"))
    for number in range(0, size, LADEN):
        content = wire.encode_content(wire.Content({"n": number, "m": each}, b"", b""))
        event = wire.Publication(number, time.time_ns(), 0, 600 * 10**9, 10, content)
        _say(broker, "p", wire.Publish(1, number, 0, (event,)))
        await asyncio.sleep(0.0)
    machine = broker.machine
    while (
        broker.driver.node.is_stirred
        or not broker.driver.node.commits.is_idle
        or len(machine.gossip.local) < size * each + 1
    ):
        await asyncio.sleep(0.01)
    return broker


def _come(broker: BrokerNode, name: str, texts: list[str]) -> None:
    node = broker.driver.node
    broker.driver.call_node(node.opened, name)
    node.received(name, joined([msgspec.msgpack.encode(Preamble("client", name))]))
    _say(broker, name, wire.Hello(wire.OLDEST_VERSION, name, "client", 1, 256))
    for number, text in enumerate(texts, 1):
        entry = wire.Entry(f"s{number}", text, None, 1.0, 0)
        _say(broker, name, wire.Subscribe(broker.machine.epoch, number, entry))


def _say(broker: BrokerNode, name: str, message: wire.Message) -> None:
    broker.driver.node.received(name, joined([wire.encode(message)]))
    broker.driver.flush()


async def _measure(size: int, each: int) -> tuple[float, float, float, int, int]:
    with tempfile.TemporaryDirectory(prefix="tidings-") as directory:
        broker = await _broker(Path(directory), size, each)
        first, took, limit = [], [], []
        for _ in range(TIMES):
            broker.snapshots.rows.clear()
            began_s = time.process_time()
            snapshot(broker)
            first.append(time.process_time() - began_s)
            began_s = time.process_time()
            found = snapshot(broker)
            made_s = time.process_time()
            text = msgspec.json.encode(found)
            limit.append(time.process_time() - made_s)
            took.append(time.process_time() - began_s)
        assert found["clients"] == size + 1, found["clients"]
        under_way: int = found["under_way"] + found["queued"]  # clients that answer no pings are away after a while
        broker.driver.stop()
        await broker.committer.close()
        broker.store.close()
        return min(first), min(took), min(limit), len(text), under_way


def main() -> None:
    print(f"status: a broker with so many clients, best of {TIMES}")
    heads = ("subscriptions", "under way", "first ms", "again ms", "JSON kB", "encoding ms", "ratio")
    print(f"{'clients':>10}" + "".join(f"{head:>15}" for head in heads))
    for text in SIZES:
        size, each = map(int, text.split("x"))
        first_s, took_s, limit_s, size_bytes, under_way = asyncio.run(_measure(size, each))
        cells = (first_s * 1e3, took_s * 1e3, size_bytes / 1e3, limit_s * 1e3, took_s / limit_s)
        print(
            f"{size:>10,}{size * each:>15,}{under_way:>15,}" + "".join(f"{cell:>15.2f}" for cell in cells), flush=True
        )


if __name__ == "__main__":
    main()
