"""The MQTT door against Mosquitto, in the same run: processor time for each message delivered, and memory of clients.

One client publishes messages of 1 kB to a topic that as many clients subscribe to as FAN_OUTS says, DELIVERIES in all,
with QoS 0 and 1, at most WINDOW of them not delivered yet. `us` is the processor time of the server process for each
delivery. The clients are the same, in this process.

Then IDLE clients connect after EARLY others, each with a subscription of its own, and do nothing: what the resident
memory of the server grows by, and the processor time that it takes meanwhile.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.live_load import brokers, free_ports
from tidings.mqtt._codec import encode
from tidings.mqtt._packets import Connect, Kind, Publish, Subscribe, Wanted

FAN_OUTS = (1, 10, 50)
DELIVERIES = 40_000
PAYLOAD = bytes(1_000)
WINDOW = 50
PATIENCE_S = 120.0
EARLY, IDLE = 500, 9_000
AT_ONCE = 50
QUIET_S = 10.0


def processor_s(pid: int) -> float:
    """The processor time that all threads of a process have taken so far, to the nanosecond."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) * 1e-9


def _packet(data: bytes, place: int) -> tuple[int, int, int] | None:
    """The first byte of the packet here, where its length ends, and where it ends itself; None if it is incomplete."""
    size, shift, begin = 0, 0, place + 1
    while begin < len(data):
        byte = data[begin]
        begin += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return None if begin + size > len(data) else (data[place], begin, begin + size)
    return None


class _Client(asyncio.Protocol):
    """A client that counts what comes, and acknowledges it. It looks at no more than it has to: the server, and not its
    clients, is to be busy."""

    def __init__(self) -> None:
        self.delivered = self.confirmed = 0
        self.answered = asyncio.Event()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        data, place = self._rest + data, 0
        answers = []
        while (found := _packet(data, place)) is not None:
            first, begin, end = found
            if first >> 4 == Kind.PUBLISH:
                self.delivered += 1
                if first & 0x06:
                    number = begin + 2 + int.from_bytes(data[begin : begin + 2], "big")
                    answers.append(b"\x40\x02" + data[number : number + 2])
            elif first >> 4 == Kind.PUBACK:
                self.confirmed += 1
            elif first >> 4 in (Kind.CONNACK, Kind.SUBACK):
                self.answered.set()
            place = end
        self._rest = data[place:]
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


def _resident_kb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1000.0


async def _idle(port: int, pid: int) -> tuple[float, float]:
    """Kilobytes of memory for each idle client, and the share of a processor that all of them take."""
    clients: list[_Client] = []

    async def join(number: int) -> None:
        client = await _connected(port, f"idle-{number}")
        await client.ask(Subscribe(packet_id=1, wanted=(Wanted(topic_filter=f"idle/{number}"),)))
        clients.append(client)

    before_kb = 0.0
    for first in range(0, EARLY + IDLE, AT_ONCE):
        if first == EARLY:
            before_kb = _resident_kb(pid)
        await asyncio.gather(*map(join, range(first, first + AT_ONCE)))
    grown_kb = _resident_kb(pid) - before_kb
    began_s = processor_s(pid)
    await asyncio.sleep(QUIET_S)
    share = (processor_s(pid) - began_s) / QUIET_S
    for each in clients:
        each.transport.close()
    return grown_kb / IDLE, share


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
        for name, server in servers.items():
            size_kb, share = asyncio.run(_idle(*server))
            print(f"  {IDLE} idle clients: {name} {size_kb:.1f} kB each, {share:.1%} of a processor", flush=True)
