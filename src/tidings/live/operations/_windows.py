"""A broker's answer to an operator's question about what it has seen lately (`live/traces/_window`).

Rows contain attributes of events and filters of clients, so whoever asks has to prove what a broker proves (`_orders`).
An answer has pieces of bounded size; whoever wants the others asks again.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from tidings.protocol.node import Answer

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["SUBSCRIPTIONS_PER_PAGE", "WindowQuestion", "answer_window"]

SUBSCRIPTIONS_PER_PAGE: Final = 4_000
_FROM_THE_BEGINNING: Final = -1


class WindowQuestion(msgspec.Struct, frozen=True, array_like=True):
    """What is asked for: pieces after this number, or if `first` is given, subscriptions from there on."""

    after: int = _FROM_THE_BEGINNING
    first: int | None = None


def answer_window(node: "BrokerNode", question: WindowQuestion) -> Answer:
    """A part of the window (`Pieces`), or of the subscriptions (a list of `RecordedSubscription`)."""
    recorder = node.recorder
    if recorder is None:
        return Answer(
            "unknown",
            f"broker {node.name!r} keeps nothing for profiles: its file has record = false under [profiles]",
        )
    if question.first is not None:
        return Answer(detail=msgspec.msgpack.encode(recorder.subscriptions(question.first, SUBSCRIPTIONS_PER_PAGE)))
    pieces = recorder.window.pieces_after(question.after, node.driver.clock.now_ns())
    return Answer(detail=msgspec.msgpack.encode(pieces))
