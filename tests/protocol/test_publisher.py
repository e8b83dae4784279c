"""A client's events on their path to its home: which of them another broker may have accepted before."""

from typing import Any

from tidings.protocol import Client, ClientSettings, Peer, wire
from tidings.protocol.client._publisher import Publisher

SECOND = 10**9


def make(sent: list[tuple[str, bool]]) -> Publisher:
    def send(peer: Peer, message: Any) -> None:
        assert isinstance(message, wire.Publish)
        sent.append((peer.name, message.is_again))

    nothing: Any = lambda _: None  # noqa: E731
    return Publisher(ClientSettings(name="c"), send=send, emit=nothing, retry_at=nothing)


def home(name: str, epoch: int = 1) -> Peer:
    peer = Client(ClientSettings(name="c"))._make_peer(name)
    peer.is_up, peer.epoch, peer.outbox.credit = True, epoch, 10
    return peer


def test_an_event_that_was_sent_to_two_brokers_stays_one_that_either_may_have() -> None:
    """Also when its client comes back to the first, which may have accepted it, or not."""
    sent: list[tuple[str, bool]] = []
    publishing = make(sent)
    publishing.add(0, b"", None, home("a"), 0)
    publishing.flush(home("a"), 0)
    for step, name in enumerate(("b", "a", "a"), 1):
        publishing.release(home(name), step * SECOND)
        publishing.resend(home(name), step * SECOND)
        publishing.flush(home(name), step * SECOND)
    assert sent == [("a", False), ("b", True), ("a", True), ("a", True)]


def test_another_life_of_the_same_broker_counts_as_another_broker() -> None:
    sent: list[tuple[str, bool]] = []
    publishing = make(sent)
    publishing.add(0, b"", None, home("a"), 0)
    publishing.flush(home("a"), 0)
    for step, life in enumerate((1, 2), 1):
        publishing.release(home("a", life), step * SECOND)
        publishing.resend(home("a", life), step * SECOND)
        publishing.flush(home("a", life), step * SECOND)
    assert sent == [("a", False), ("a", False), ("a", True)]
