"""The MQTT door against Mosquitto: processor time of the server for each message delivered, in the same run.

One client publishes messages of 1 kB to a topic that as many clients subscribe to as FAN_OUTS says, DELIVERIES in all,
with QoS 0 and 1, at most WINDOW of them not delivered yet. `us` is the processor time of the server process for each
delivery. The clients are the same, in this process: sockets, and packets made and read by `tidings.mqtt`.
"""

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.live_load import brokers, free_ports, processor_s
from tidings.mqtt._codec import Reader, encode
from tidings.mqtt._packets import Ack, Connack, Connect, Kind, Publish, Suback, Subscribe, Wanted

FAN_OUTS = (1, 10, 50)
DELIVERIES = 10_000
PAYLOAD = bytes(1_000)
WINDOW = 50
PATIENCE_S = 120.0


class _Client(asyncio.Protocol):
    """A client that counts what comes, and acknowledges it."""

    def __init__(self) -> None:
        self.reader = Reader()
        self.delivered = self.confirmed = 0
        self.answered = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        answers = []
        while (packet := self.reader.next()) is not None:
            if isinstance(packet, Publish):
                self.delivered += 1
                if packet.qos:
                    answers.append(encode(Ack(Kind.PUBACK, packet.packet_id)))
            elif isinstance(packet, Ack):
                self.confirmed += 1
            elif isinstance(packet, Connack | Suback):
                self.answered.set()
        if answers:
            self.transport.write(b"".join(answers))

    async def ask(self, packet: Connect | Subscribe) -> None:
        self.answered.clear()
        self.transport.write(encode(packet))
        await asyncio.wait_for(self.answered.wait(), PATIENCE_S)


async def _connected(port: int, name: str) -> _Client:
    _, client = await asyncio.get_running_loop().create_connection(_Client, "127.0.0.1", port)
    await client.ask(Connect(client_id=name))
    return client


async def _measure(port: int, pid: int, fan_out: int, qos: int) -> tuple[float, float]:
    """Microseconds of processor time for each delivery, and deliveries a second."""
    subscribers = [await _connected(port, f"s{number}-{qos}-{fan_out}") for number in range(fan_out)]
    for each in subscribers:
        await each.ask(Subscribe(packet_id=1, wanted=(Wanted(topic_filter="load", qos=qos),)))
    publisher = await _connected(port, f"p-{qos}-{fan_out}")
    messages = DELIVERIES // fan_out
    warm = messages // 10
    end_s = time.monotonic() + PATIENCE_S
    began_s = began_cpu_s = 0.0
    for number in range(warm + messages):
        if number == warm:
            began_s, began_cpu_s = time.monotonic(), processor_s(pid)
        packet = Publish(topic="load", payload=PAYLOAD, qos=qos, packet_id=number % 60_000 + 1 if qos else 0)
        publisher.transport.write(encode(packet))
        while number - min(each.delivered for each in subscribers) >= WINDOW and time.monotonic() < end_s:
            await asyncio.sleep(0.001)
    while min(each.delivered for each in subscribers) < warm + messages:
        if time.monotonic() > end_s:
            raise RuntimeError(f"only {min(each.delivered for each in subscribers)} of {warm + messages} came")
        await asyncio.sleep(0.001)
    spent_s, took_s = processor_s(pid) - began_cpu_s, time.monotonic() - began_s
    for each in (*subscribers, publisher):
        each.transport.close()
    return spent_s / (messages * fan_out) * 1e6, messages * fan_out / took_s


@contextlib.contextmanager
def _mosquitto() -> Iterator[tuple[int, int]]:
    """A Mosquitto with its defaults, but for what would make it drop messages; its port and process."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if program is None:
        raise FileNotFoundError("mosquitto is not installed")
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "mosquitto.conf"
        path.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n", "utf-8")
        process = subprocess.Popen([program, "-c", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1.0)
            yield port, process.pid
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def _tidings() -> Iterator[tuple[int, int]]:
    """A broker with a door; its port and process."""
    listen, port = free_ports(2)
    text = f'[[broker]]\nname = "a"\nlisten = "127.0.0.1:{listen}"\nmqtt = "127.0.0.1:{port}"\n'
    with brokers(text, {"a": listen}) as processes:
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            with contextlib.suppress(OSError):
                asyncio.run(_connected(port, "first"))
                break
            time.sleep(0.1)
        yield port, processes["a"].pid


def main() -> None:
    """Print one line for each load."""
    print("MQTT, 1 kB: processor time of the server for each delivery, and deliveries a second")
    with contextlib.ExitStack() as stack:
        servers = {"tidings": stack.enter_context(_tidings())}
        try:
            servers["mosquitto"] = stack.enter_context(_mosquitto())
        except FileNotFoundError as error:
            print(f"  {error}: no comparison")
        for qos in (0, 1):
            for fan_out in FAN_OUTS:
                found = {name: asyncio.run(_measure(*server, fan_out, qos)) for name, server in servers.items()}
                line = "  ".join(f"{name} {us:7.1f} us {rate:8.0f}/s" for name, (us, rate) in found.items())
                ratio = f"  ratio {found['tidings'][0] / max(found['mosquitto'][0], 0.1):.1f}" if len(found) > 1 else ""
                print(f"  QoS {qos}, {fan_out:3d} subscribers: {line}{ratio}", flush=True)
