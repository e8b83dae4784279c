"""What all brokers of a network have seen lately, asked for by an operator (`_windows`)."""

import asyncio
from typing import Final, TypeVar

import msgspec

from tidings.errors import TidingsError
from tidings.live.configuration._config import Network
from tidings.live.operations._orders import Orders
from tidings.live.operations._query import put_question
from tidings.live.operations._windows import SUBSCRIPTIONS_PER_PAGE, WindowQuestion
from tidings.live.traces._recorder import RecordedSubscription
from tidings.live.traces._window import Piece, Pieces
from tidings.protocol.node import Preamble

__all__ = ["BrokerWindow", "ask_windows"]

PAGES_MAX: Final = 10_000
_Part = TypeVar("_Part")


class BrokerWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker has seen since `since_ns`, and its present subscriptions; `now_ns` is when it answered first.
    Times are by its clock."""

    name: str
    since_ns: int
    now_ns: int
    pieces: tuple[Piece, ...]
    subscriptions: tuple[RecordedSubscription, ...]


async def ask_windows(network: Network) -> tuple[list[BrokerWindow], dict[str, str]]:
    """The windows of all brokers that answer, and by name why the others do not; an error if none does."""

    async def ask(name: str) -> BrokerWindow | str:
        try:
            return await _window_of(network, name)
        except TidingsError as error:
            return str(error)

    answers = dict(zip(network.brokers, await asyncio.gather(*map(ask, network.brokers)), strict=True))
    silent = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    windows = [answer for answer in answers.values() if not isinstance(answer, str)]
    if not windows:
        raise TidingsError(f"{network.path}: no broker answers; {next(iter(silent.values()))}")
    return windows, silent


async def _window_of(network: Network, name: str) -> BrokerWindow:
    """The window of one broker; TidingsError if it does not answer."""
    part = await _ask(network, name, WindowQuestion(), Pieces)
    now_ns, since_ns, found = part.now_ns, part.since_ns, {piece.number: piece for piece in part.pieces}
    for _ in range(PAGES_MAX):
        if not part.has_more:
            break
        part = await _ask(network, name, WindowQuestion(after=max(found)), Pieces)
        found |= {piece.number: piece for piece in part.pieces}
    subscriptions: dict[tuple[str, str], RecordedSubscription] = {}
    for page in range(PAGES_MAX):
        question = WindowQuestion(first=page * SUBSCRIPTIONS_PER_PAGE)
        some = await _ask(network, name, question, list[RecordedSubscription])
        subscriptions |= {(each.client, each.name): each for each in some}
        if len(some) < SUBSCRIPTIONS_PER_PAGE:
            break
    return BrokerWindow(
        name=name,
        since_ns=since_ns,
        now_ns=now_ns,
        pieces=tuple(found.values()),
        subscriptions=tuple(subscriptions.values()),
    )


async def _ask(network: Network, name: str, question: WindowQuestion, kind: type[_Part]) -> _Part:
    asked = Preamble("operator", "operator", detail=msgspec.msgpack.encode(Orders(window=question)))
    answer = await put_question(network, name, asked, network.shared_token(is_made=False))
    try:
        return msgspec.msgpack.decode(answer.detail, type=kind)
    except msgspec.MsgspecError:
        raise TidingsError(f"broker {name!r} keeps no window of its events: upgrade it") from None
