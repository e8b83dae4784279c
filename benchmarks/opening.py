"""What it costs to let a client in: opening, proof and greeting, both ends, without sockets.

Clients come to one broker, 100, 400 and 1,600 of them, and prove nothing, a token, or a key of their own. Printed: the
processor time for each, and as a share of the peer beside it in the same run: a TLS handshake with a certificate of the
server alone, in memory, both ends.
"""

import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tidings.live.security._certificates import make_certificates
from tidings.protocol import Broker, BrokerSettings, Client, ClientSettings
from tidings.protocol.node import (
    Admission,
    Commit,
    ConnectionLimits,
    Credentials,
    Dial,
    Directory,
    Node,
    Preamble,
    Token,
    Write,
)

SIZES = (100, 400, 1_600)
TOKEN = "a token that all clients have"
LIMITS = ConnectionLimits(max_frame_bytes=1 << 20)
NOW_NS = 10**18
HANDSHAKES = 50


def _broker(tokens: tuple[Token, ...]) -> Node:
    machine = Broker(BrokerSettings(name="a"))
    admission = Admission(name="a", tokens=tokens)
    node = Node(machine, preamble=Preamble("broker", "a"), limits=LIMITS, chance=lambda: 0.5, admission=admission)
    node.directory = Directory("a", {"a": "a"})
    for effect in node.start(NOW_NS):
        if isinstance(effect, Commit):
            node.committed(NOW_NS)
    return node


def _let_in(broker: Node, number: int, credentials: Credentials) -> None:
    """One client comes in, as far as the greeting."""
    name, there = f"c{number}", f"in-{number}"
    client = Node(
        Client(ClientSettings(name=name)),
        preamble=Preamble("client", name),
        limits=LIMITS,
        chance=lambda: 0.5,
        credentials=credentials,
    )
    client.start(NOW_NS)
    effects = [*client.want("a", "a", None, NOW_NS), *client.wake(NOW_NS)]
    here = next(effect.connection for effect in effects if isinstance(effect, Dial))
    client.opened(here, NOW_NS, address="a")
    broker.opened(there, NOW_NS, address=name)
    while client.is_stirred or broker.is_stirred:
        for node, other, connection in ((client, broker, there), (broker, client, here)):
            for effect in node.turn(NOW_NS):
                if isinstance(effect, Write):
                    other.received(connection, b"".join(effect.parts))
    machine = broker.machine
    assert isinstance(machine, Broker)
    assert machine.clients[name].is_up


def _each_us(count: int, tokens: tuple[Token, ...], credentials: Callable[[int], Credentials]) -> float:
    broker = _broker(tokens)
    _let_in(broker, count, credentials(count))  # what is loaded on first use
    began_s = time.process_time()
    for number in range(count):
        _let_in(broker, number, credentials(number))
    return (time.process_time() - began_s) / count * 1e6


def _tls_us() -> float:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        make_certificates(folder, ("a",))
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        server.load_cert_chain(folder / "a.pem", folder / "a.key")
        client.load_verify_locations(folder / "authority.pem")
        began_s = time.process_time()
        for _ in range(HANDSHAKES):
            _shake_hands(server, client)
        return (time.process_time() - began_s) / HANDSHAKES * 1e6


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there, server_hostname="a"), server.wrap_bio(there, back, server_side=True)]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue


def main() -> None:
    tls_us = _tls_us()
    print(f"opening: a client is let in, both ends; beside it a TLS handshake, both ends: {tls_us:,.0f} us")
    print(f"{'clients':>8}{'nothing us':>12}{'token us':>10}{'key us':>8}   of a TLS handshake: token, key")
    tokens = (Token(identity="*", secret=TOKEN),)
    for count in SIZES:
        nothing_us = _each_us(count, (), lambda _: Credentials())
        token_us = _each_us(count, tokens, lambda _: Credentials(token=TOKEN))
        key_us = _each_us(count, (), lambda number: Credentials(secret=f"secret {number}"))
        ratios = f"{token_us / tls_us:.2f}, {key_us / tls_us:.2f}"
        print(f"{count:>8}{nothing_us:>12,.0f}{token_us:>10,.0f}{key_us:>8,.0f}   {ratios}")


if __name__ == "__main__":
    main()
