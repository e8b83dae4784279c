"""Strangers that connect to brokers: some send garbage, some use another's name.

None may be admitted under a name without its token or secret, and nothing that they send may disturb others.
"""

from typing import Final

import msgspec

from tidings.protocol import Broker, wire
from tidings.protocol.node import ClientKey, Preamble, Proof, prefixed
from tidings.storm._dice import Dice
from tidings.storm._network import GUEST, Process, StormNetwork
from tidings.storm._sockets import Socket, connect

__all__ = ["Stranger", "send_garbage", "send_impostor"]

_GONE_AFTER_NS: Final = (0.1e9, 8e9)


class Stranger:
    """A peer that is not part of the network; `may_enter`: it has a token of its own."""

    is_powered = True

    def __init__(self, name: str, *, may_enter: bool) -> None:
        self.name = name
        self.may_enter = may_enter

    def stir(self, socket: Socket) -> None:
        """Received bytes are ignored."""
        socket.take()

    def ended(self, socket: Socket, reason: str) -> None:
        """The connection was closed."""

    def congested(self, socket: Socket, is_congested: bool) -> None:
        """Congestion is ignored."""


def send_garbage(network: StormNetwork, dice: Dice, broker: Process) -> None:
    """Send garbage to a broker, from the first byte on or later."""
    guest = msgspec.msgpack.encode(Preamble("client", GUEST, GUEST))
    streams = (
        [b"", _noise(dice, 400)],
        prefixed([_noise(dice, 60)]),
        [b"\xff\xff\xff\xff", _noise(dice, 100)],
        [*prefixed([guest])[:1], guest[: len(guest) // 2]],
        prefixed([guest, *(_nonsense(dice) for _ in range(3 + dice.whole(30)))]),
    )
    _send(network, dice, broker, dice.one_of(streams), may_enter=True)


def send_impostor(network: StormNetwork, dice: Dice, broker: Process, victim: str) -> None:
    """Connect under the name of a client or a neighbour, without its token or secret.

    Without tokens a name that no broker knows is free, so nobody is an impostor then.
    """
    machine = None if broker.node is None else broker.node.machine
    if not isinstance(machine, Broker):
        return
    neighbours = sorted(machine.settings.neighbours)
    is_broker = bool(neighbours) and dice.happens(0.5)
    if not is_broker and not network.has_tokens and not machine.keys_of(victim):
        return
    name = dice.one_of(neighbours) if is_broker else victim
    token = dice.one_of((None, "", GUEST, "of all"))
    kind = "broker" if is_broker else "client"
    own = ClientKey("a secret of somebody else", name)
    preamble = Preamble(kind, name, token)  # type: ignore[arg-type]
    if dice.happens(0.6):
        # It takes part in the opening, with a key of its own or the one that belongs to the name.
        theirs = b"" if is_broker else next(iter(machine.keys_of(victim) or ()), b"")
        preamble = msgspec.structs.replace(preamble, nonce=b"n" * 32, key=dice.one_of((b"", own.public, theirs)))
    proof = dice.one_of((b"", own.sign(b"anything"), bytes(32)))
    hello = wire.encode(wire.Hello(wire.VERSION, name, kind, 1 << 40, 100))
    frames = [msgspec.msgpack.encode(preamble), msgspec.msgpack.encode(Proof(proof)), hello, hello]
    _send(network, dice, broker, prefixed(frames), may_enter=False)


def _send(network: StormNetwork, dice: Dice, broker: Process, parts: list[bytes], *, may_enter: bool) -> None:
    if broker.node is None or not broker.is_powered:
        return
    stranger = Stranger("stranger", may_enter=may_enter)
    there, back = network.path("stranger", broker.name), network.path(broker.name, "stranger")
    near, far = connect(network, (stranger, "out", there), (broker, broker.next_name(), back))
    broker.accept(far)
    near.write(parts)
    network.at(network.now_ns + round(dice.between(*_GONE_AFTER_NS)), _leave, near, dice.happens(0.5))


def _leave(socket: Socket, at_once: bool) -> None:
    socket.close(at_once=at_once)


def _noise(dice: Dice, most: int) -> bytes:
    return bytes(dice.whole(256) for _ in range(1 + dice.whole(most)))


def _nonsense(dice: Dice) -> bytes:
    """Random bytes, or a message with one byte changed."""
    if dice.happens(0.5):
        return _noise(dice, 80)
    frame = bytearray(wire.encode(dice.one_of((wire.Credit(3), wire.Ping(1, 2, 3, None)))))
    frame[dice.whole(len(frame))] = dice.whole(256)
    return bytes(frame)
