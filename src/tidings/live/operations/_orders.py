"""Operators' orders: to move clients to another home broker, and to hand out what the broker has seen lately.

An order is the first and only frame of a connection. It is accepted from anyone who could connect as one of the
network's brokers (`Admission`). The broker asks its clients as if it had found a better place itself (paper E, phase
3), and answers at once. The client decides, and moves on its own; the sender of the order polls brokers to learn
whether it has moved.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tidings.errors import TidingsError
from tidings.live._errors import ConnectionLostError
from tidings.live.configuration._config import Network
from tidings.live.operations._query import put_question
from tidings.live.operations._windows import WindowQuestion, answer_window
from tidings.protocol.node import Answer, MistrustError, Preamble

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["Orders", "Outcome", "Whereabouts", "answer_operator", "move_clients"]

PATIENCE_S: Final = 15.0
"""A client gives up a move after 10 s."""
_POLL_S: Final = 0.2
_MOST: Final = 1_000
"""Clients in one frame."""


class Orders(msgspec.Struct, frozen=True, array_like=True):
    """Which clients to ask to move where, which clients to look for at this broker, or what of its window is wanted
    (`_windows`); that alone is answered then."""

    moves: dict[str, str] = {}
    where: tuple[str, ...] = ()
    window: WindowQuestion | None = None


class Whereabouts(msgspec.Struct, frozen=True, array_like=True):
    """The answer: clients that were asked to move, that are connected here, that are known here and away."""

    asked: tuple[str, ...] = ()
    here: tuple[str, ...] = ()
    away: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one client's move."""

    client: str
    origin: str | None
    target: str
    outcome: Literal["moved", "there already", "did not move", "not connected", "no such broker"]
    why: str = ""


def answer_operator(node: "BrokerNode", detail: bytes) -> Answer:
    """Carry out orders as far as one broker can."""
    try:
        orders = msgspec.msgpack.decode(detail, type=Orders)
    except msgspec.MsgspecError as error:
        return Answer("malformed", f"broker {node.name!r} cannot read the orders: {error}")
    if orders.window is not None:
        return answer_window(node, orders.window)
    machine = node.machine
    asked = []
    for client, target in orders.moves.items():
        if node.driver.call(machine.ask_to_move, client, target):
            node.log.info("asked to move", client=client, to=target)
            asked.append(client)
    known = [client for client in orders.where if client in machine.clients]
    here = tuple(client for client in known if machine.clients[client].is_up)
    away = tuple(client for client in known if not machine.clients[client].is_up)
    return Answer(detail=msgspec.msgpack.encode(Whereabouts(tuple(asked), here, away)))


async def move_clients(
    network: Network,
    moves: Mapping[str, str],
    *,
    patience_s: float = PATIENCE_S,
    progress: Callable[[float], None] = lambda _: None,
) -> list[Outcome]:
    """Ask clients to move to brokers, by name, and wait until they have; TidingsError if a broker takes no orders."""
    homes, away = await _whereabouts(network, moves)
    settled: dict[str, Outcome] = {}
    orders: dict[str, dict[str, str]] = defaultdict(dict)
    for client, target in moves.items():
        origin = next((home for home in homes[client] if home != target), None)
        if target not in network.brokers:
            settled[client] = _outcome(
                client, origin, target, "no such broker", f"{network.path} has no broker of that name"
            )
        elif origin is not None:
            orders[origin][client] = target
        elif homes[client]:
            settled[client] = _outcome(client, target, target, "there already")
        else:
            why = f"it is away from {', '.join(away[client])}" if away[client] else "no broker knows it"
            settled[client] = _outcome(client, None, target, "not connected", why)
    for origin, wanted in orders.items():
        asked = await _give(network, origin, Orders(moves=wanted))
        for client in wanted.keys() - set(asked.asked):
            why = f"{origin!r} could not ask it: it has just left, or {wanted[client]!r} cannot be reached"
            settled[client] = _outcome(client, origin, wanted[client], "did not move", why)
    under_way = {
        client: (origin, target)
        for origin, wanted in orders.items()
        for client, target in wanted.items()
        if client not in settled
    }
    settled |= await _watch(network, under_way, patience_s, lambda left: progress(1.0 - left / max(len(moves), 1)))
    return [settled[client] for client in moves]


async def _watch(
    network: Network, under_way: dict[str, tuple[str, str]], patience_s: float, left: Callable[[int], None]
) -> dict[str, Outcome]:
    """Wait for clients to be where they should be, and only there."""
    settled: dict[str, Outcome] = {}
    until_s = time.monotonic() + patience_s
    while under_way and time.monotonic() < until_s:
        left(len(under_way))
        await asyncio.sleep(_POLL_S)
        homes, away = await _whereabouts(network, under_way)
        for client, (origin, target) in list(under_way.items()):
            if homes[client] == [target] and origin not in away[client]:
                settled[client] = _outcome(client, origin, target, "moved")
                del under_way[client]
    for client, (origin, target) in under_way.items():
        why = f"it is still at {origin!r} after {patience_s:g} s: it may refuse to move, or cannot reach {target!r}"
        settled[client] = _outcome(client, origin, target, "did not move", why)
    return settled


def _outcome(client: str, origin: str | None, target: str, outcome: str, why: str = "") -> Outcome:
    return msgspec.convert(
        {"client": client, "origin": origin, "target": target, "outcome": outcome, "why": why}, Outcome
    )


async def _whereabouts(network: Network, clients: Iterable[str]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """By client: the brokers that it is connected to, and those that know it and do not hear it."""
    names = list(clients)
    homes: dict[str, list[str]] = {name: [] for name in names}
    away: dict[str, list[str]] = {name: [] for name in names}
    for start in range(0, len(names), _MOST):
        orders = Orders(where=tuple(names[start : start + _MOST]))
        answers = await asyncio.gather(*(_look(network, broker, orders) for broker in network.brokers))
        for broker, answer in zip(network.brokers, answers, strict=True):
            for name in answer.here:
                homes[name].append(broker)
            for name in answer.away:
                away[name].append(broker)
    return homes, away


async def _look(network: Network, broker: str, orders: Orders) -> Whereabouts:
    """A broker that is down, or in whose place somebody else is, has nobody; one that takes no orders is an error."""
    try:
        return await _give(network, broker, orders)
    except (ConnectionLostError, MistrustError):
        return Whereabouts()


async def _give(network: Network, broker: str, orders: Orders) -> Whereabouts:
    question = Preamble("operator", "operator", detail=msgspec.msgpack.encode(orders))
    answer = await put_question(network, broker, question, network.shared_token(is_made=False))
    try:
        return msgspec.msgpack.decode(answer.detail, type=Whereabouts)
    except msgspec.MsgspecError:
        raise TidingsError(f"broker {broker!r} does not take orders: upgrade it") from None
