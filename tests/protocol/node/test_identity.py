"""Who is who: challenges that only the right one can meet, names that belong to keys, and what brokers know of them."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.node.nodes import LATEST, Wire, broker, client

from tidings.model.filters import Filter
from tidings.protocol import OLDEST_VERSION, Broker, Client, Deliver, Failed
from tidings.protocol._errors import DeniedError
from tidings.protocol.node import (
    Admission,
    Admitted,
    Answer,
    Challenge,
    ClientKey,
    Commit,
    Credentials,
    MistrustError,
    Node,
    Opening,
    Preamble,
    Proof,
    Report,
    Rule,
    Token,
    Unreached,
)

TOKEN = "a token of all brokers"
SECOND = 10**9
NAMES = st.text(min_size=1, max_size=20)
NONCES = st.binary(min_size=32, max_size=32)


@dataclass
class Door:
    """A broker's side of one opening."""

    admission: Admission
    nonce: bytes

    def challenge(self, preamble: Preamble, keys: tuple[bytes, ...] = ()) -> Challenge:
        demand = self.admission.demand(preamble, (), keys)
        assert demand is not None
        return Challenge(preamble=preamble, demand=demand, listener=self.admission.name, nonce=self.nonce)


def door(name: str = "b2", token: str = TOKEN, nonce: bytes = b"2" * 32, **more: Any) -> Door:
    return Door(Admission(name=name, neighbours=frozenset({"b1", "b3"}), broker_token=token, **more), nonce)


def dialler(name: str = "b1", token: str = TOKEN, nonce: bytes = b"1" * 32, listener: str = "b2") -> Opening:
    return Opening(Preamble("broker", name), Credentials(token=token), nonce, listener=listener)


def encoded(answer: Any) -> bytes:
    return msgspec.msgpack.encode(answer)


def prove(opening: Opening, challenge: Challenge) -> bytes:
    preamble = opening.answered(encoded(challenge.answer()))
    assert isinstance(preamble, Proof)
    return preamble.proof


def test_both_ends_prove_that_they_have_the_token() -> None:
    one, other = dialler(), door()
    challenge = other.challenge(one.preamble)
    token, proof = challenge.met(prove(one, challenge))
    assert token == TOKEN
    assert one.answered(encoded(Answer(speaks=3, proof=proof))) == Answer(speaks=3, proof=proof)
    assert TOKEN.encode() not in one.first


@given(guess=NAMES.filter(lambda text: text != TOKEN))
def test_who_does_not_have_the_token_is_refused_at_either_end(guess: str) -> None:
    one, other = dialler(token=guess), door()
    challenge = other.challenge(one.preamble)
    with pytest.raises(DeniedError, match="does not have the brokers' token"):
        challenge.met(prove(one, challenge))
    one, other = dialler(), door(token=guess)
    challenge = other.challenge(one.preamble)
    prove(one, challenge)
    theirs = msgspec.structs.replace(challenge, demand=msgspec.structs.replace(challenge.demand, tokens=(guess,)))
    for proof in (b"", bytes(32), theirs.nonce):
        with pytest.raises(MistrustError, match="does not have the token"):
            one.answered(encoded(Answer(speaks=3, proof=proof)))


@given(
    nonce=NONCES, other_nonce=NONCES, change=st.sampled_from(("nonce", "name", "kind", "listener", "speaks", "detail"))
)
def test_a_proof_is_good_for_one_opening_and_nothing_else(nonce: bytes, other_nonce: bytes, change: str) -> None:
    """Neither replayed, nor under another name, as something else, towards somebody else, or about something else."""
    one, other = dialler(nonce=nonce), door()
    challenge = other.challenge(one.preamble)
    proof = prove(one, challenge)
    assert challenge.met(proof)[0] == TOKEN
    preamble = challenge.preamble
    replayed = {
        "nonce": msgspec.structs.replace(challenge, nonce=other_nonce),
        "name": msgspec.structs.replace(challenge, preamble=msgspec.structs.replace(preamble, name="b3")),
        "kind": msgspec.structs.replace(challenge, preamble=msgspec.structs.replace(preamble, kind="operator")),
        "listener": msgspec.structs.replace(challenge, listener="b3"),
        "speaks": msgspec.structs.replace(challenge, preamble=msgspec.structs.replace(preamble, speaks=(1, 1))),
        "detail": msgspec.structs.replace(challenge, preamble=msgspec.structs.replace(preamble, detail=b"an order")),
    }[change]
    if replayed != challenge:
        with pytest.raises(DeniedError):
            replayed.met(proof)


def test_a_proof_cannot_be_reflected() -> None:
    """What one end has proved is no proof of the other end."""
    one, other = dialler(), door()
    challenge = other.challenge(one.preamble)
    proof = prove(one, challenge)
    with pytest.raises(MistrustError):
        one.answered(encoded(Answer(speaks=3, proof=proof)))
    _, theirs = challenge.met(proof)
    with pytest.raises(DeniedError):
        challenge.met(theirs)


def test_a_broker_goes_on_with_nobody_but_the_one_it_has_dialled() -> None:
    one = dialler(listener="b2")
    with pytest.raises(MistrustError, match="'b3' answers instead of 'b2'"):
        prove(one, door(name="b3").challenge(one.preamble))
    with pytest.raises(MistrustError, match="does not ask for the token"):
        dialler().answered(encoded(Answer(speaks=3)))
    with pytest.raises(MistrustError):
        dialler().answered(encoded(Answer(text="b2", nonce=bytes(32), wants="key")))


def test_a_token_is_shown_to_version_2_only_where_that_is_meant() -> None:
    shown = Opening(Preamble("broker", "b1"), Credentials(token=TOKEN), bytes(32), is_trusted=True)
    assert shown.preamble.token == TOKEN
    assert isinstance(shown.answered(encoded(["", "", b""])), Answer)  # as version 2 answers
    demand = door().admission.demand(Preamble("broker", "b1", TOKEN), ())
    assert demand is not None
    assert demand.require_shown(TOKEN) == TOKEN
    for wrong in (None, "", "a guess"):
        with pytest.raises(DeniedError):
            demand.require_shown(wrong)
    implied = Credentials(token=TOKEN, is_token_implied=True)
    assert Opening(Preamble("broker", "b1"), implied, bytes(32), is_trusted=True).preamble.token is None


def test_an_implied_token_is_asked_of_version_2_unless_the_network_is_being_upgraded() -> None:
    """A broker of version 2 knows of no such token, and cannot be challenged."""
    old, new = Preamble("broker", "b1"), Preamble("broker", "b1", nonce=bytes(32))
    strict, lenient = (door(is_token_implied=True, trusts_old=trusts).admission for trusts in (False, True))
    assert lenient.demand(old, ()) is None
    assert lenient.demand(new, ()) is not None  # who can be challenged has it
    demand = strict.demand(old, ())
    assert demand is not None
    with pytest.raises(DeniedError, match="write wire_version = 2 under"):
        demand.require_shown(None)


@given(secret=NAMES, other=NAMES, name=NAMES, nonce=NONCES)
def test_a_key_follows_from_secret_and_name_alone(secret: str, other: str, name: str, nonce: bytes) -> None:
    owner, same = ClientKey(secret, name), ClientKey(secret, name)
    assert owner.public == same.public
    assert (ClientKey(other, name).public == owner.public) == (other == secret)
    preamble = Opening(Preamble("client", name), Credentials(secret=secret), nonce).preamble
    assert preamble.key == owner.public
    challenge = Door(Admission(name="a"), bytes(32)).challenge(preamble, (owner.public,))
    opening = Opening(Preamble("client", name), Credentials(secret=secret), nonce)
    assert challenge.met(prove(opening, challenge)) == (None, b"")
    thief = Opening(Preamble("client", name), Credentials(secret=f"{secret}!"), nonce)
    thief.preamble = preamble  # it shows the owner's key
    with pytest.raises(DeniedError) as denied:
        challenge.met(prove(thief, challenge))
    assert denied.value.code == "identity"


# -- nodes -------------------------------------------------------------------------------------------------------------


def pair(wire: Wire, **more: Any) -> tuple[Node, Node]:
    """Two brokers that know each other."""
    a = broker(wire, "a", "b", token=TOKEN, **more)
    b = broker(wire, "b", "a", token=TOKEN, **more)
    wire.carry("a", a.want("b", "b", "b", wire.now_ns))
    wire.run(6.0)
    return a, b


def machine(node: Node) -> Broker:
    assert isinstance(node.machine, Broker)
    return node.machine


def call(wire: Wire, name: str, what: str, *arguments: Any) -> None:
    wire.call(name, getattr(wire.nodes[name].machine, what), *arguments)


def leave(wire: Wire, name: str) -> None:
    """The process of a client ends."""
    wire.carry(name, wire.nodes[name].end("it leaves", wire.now_ns))
    wire.settle()
    del wire.nodes[name]
    wire.timers.pop(name, None)


def restarted(wire: Wire, name: str, neighbour: str) -> Node:
    """A broker that has crashed, and begins again with what it had stored."""
    kept: dict[str, bytes] = {}
    for commit in wire.of(name, Commit):
        for key, value in commit.writes.items():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = value
    for here, connection in [end for end in wire.ends if end[0] == name]:
        wire.cut(here, connection)
    del wire.nodes[name]
    again = broker(wire, name, neighbour, token=TOKEN, kept=kept)
    wire.carry(name, again.want(neighbour, neighbour, neighbour, wire.now_ns))
    return again


def codes(wire: Wire, name: str) -> list[str]:
    return [effect.code for effect in wire.of(name, Unreached)]


@pytest.mark.parametrize("speaks", [LATEST, (OLDEST_VERSION, OLDEST_VERSION)], ids=["latest", "oldest"])
def test_brokers_with_the_token_are_neighbours(speaks: tuple[int, int]) -> None:
    wire = Wire()
    a, b = pair(wire, speaks=speaks)
    assert machine(a).neighbours["b"].is_up
    assert machine(b).neighbours["a"].is_up


def test_a_broker_without_the_token_is_no_neighbour() -> None:
    wire = Wire()
    a = broker(wire, "a", "b", token="a guess")
    b = broker(wire, "b", "a", token=TOKEN)
    wire.carry("a", a.want("b", "b", "b", wire.now_ns))
    wire.run(3.0)
    assert not machine(b).neighbours
    assert b.machine.refused["token"] > 1  # it tries again, for that may change
    assert {effect.facts["code"] for effect in wire.of("b", Report) if effect.event == "denied"} == {"token"}


def test_a_name_belongs_to_a_key_at_every_broker() -> None:
    wire = Wire()
    a, b = pair(wire)
    client(wire, "s", "a", secret="of s")
    call(wire, "s", "subscribe", "all", "n >= 0")
    wire.run(1.0)
    key = ClientKey("of s", "s").public
    assert list(machine(a).keys_of("s") or ()) == list(machine(b).keys_of("s") or ()) == [key]
    for number, (home, secret) in enumerate([("a", None), ("a", "another"), ("b", None), ("b", "another")]):
        name = f"impostor {number}"
        client(wire, name, home, secret=secret, known_as="s", epoch=2**62)
        wire.run(0.5)
        assert codes(wire, name) == ["identity"]
        assert not wire.of(name, Admitted)
    assert machine(a).clients["s"].is_up  # the owner was never disturbed
    # It may move, and the name belongs to it where it is then.
    call(wire, "s", "move", "b")
    wire.run(3.0)
    assert machine(b).clients["s"].is_up
    assert "s" not in machine(a).clients
    assert list(machine(a).keys_of("s") or ()) == [key]
    # It leaves nothing behind: its name is free, once its former home is sure that all have heard of the new one.
    call(wire, "s", "unsubscribe", "all")
    wire.run(1.0)
    leave(wire, "s")
    wire.run(40.0)
    assert not list(machine(a).keys_of("s") or ())
    assert not list(machine(b).keys_of("s") or ())


@pytest.mark.parametrize("crashes", [False, True], ids=["up", "restarted"])
def test_a_name_is_bound_at_its_former_home_until_all_know_the_new_one(crashes: bool) -> None:
    """A third broker may hear that the client has left before it hears of its new home (found by a storm)."""
    wire = Wire()
    a, b = pair(wire)
    client(wire, "s", "a", secret="of s")
    call(wire, "s", "subscribe", "all", "n >= 0")
    wire.run(1.0)
    key = ClientKey("of s", "s").public
    call(wire, "s", "move", "b")
    wire.run(0.5)
    assert "s" not in machine(a).clients
    if crashes:
        a = restarted(wire, "a", "b")
        wire.run(4.0)
        assert "s" not in machine(a).clients
    assert machine(b).gossip.interests.keys_of("s") == {"a": key}
    assert machine(a).gossip.local.key_of("s") == key
    wire.run(60.0)
    assert machine(b).gossip.interests.keys_of("s") == {}
    assert list(machine(b).keys_of("s") or ()) == list(machine(a).keys_of("s") or ()) == [key]


def test_a_name_stays_bound_when_a_publisher_comes_back_and_leaves_again() -> None:
    wire = Wire()
    _, b = pair(wire)
    client(wire, "p", "a", secret="of p")
    call(wire, "p", "advertise", "all", "TRUE")
    wire.run(1.0)
    for home in ("b", "a"):
        call(wire, "p", "move", home)
        wire.run(30.0)
    call(wire, "p", "move", "b")
    wire.run(0.5)
    assert machine(b).gossip.interests.keys_of("p") == {"a": ClientKey("of p", "p").public}


def test_with_tokens_the_key_does_not_matter() -> None:
    wire = Wire()
    a = broker(wire, "a", tokens=(Token(identity="s", secret="the token of s"),))
    client(wire, "s", "a", token="the token of s", secret="of s")
    call(wire, "s", "subscribe", "all", "n >= 0")
    wire.run(1.0)
    assert machine(a).clients["s"].is_up
    assert machine(a).clients["s"].key == b""
    client(wire, "thief", "a", secret="of s", known_as="s")
    client(wire, "guest", "a", token="a guess", known_as="s")
    wire.run(1.0)
    assert codes(wire, "thief") == codes(wire, "guest") == ["token"]


def test_a_client_does_not_show_or_prove_its_token_to_who_does_not_ask_for_it() -> None:
    wire = Wire()
    broker(wire, "a")
    client(wire, "s", "a", token="the token of s")
    wire.run(1.0)
    assert not wire.of("s", Admitted)
    assert "asks for no token" in wire.of("s", Unreached)[0].why or "does not ask" in wire.of("s", Unreached)[0].why
    assert codes(wire, "s")[0] == ""  # it is not refused: it tries again, for a broker may come back to that place


def test_nobody_is_sent_what_another_of_its_name_had_at_another_broker() -> None:
    """Two brokers that did not know of each other let in two of one name: neither is the other's new life."""
    wire = Wire()
    a = broker(wire, "a", "b", token=TOKEN)
    b = broker(wire, "b", "a", token=TOKEN)
    client(wire, "victim", "a", secret="the owner's", known_as="s", epoch=5)
    client(wire, "p", "a", secret="of p")
    call(wire, "p", "advertise", "all", "TRUE")
    call(wire, "victim", "subscribe", "all", "n >= 0")
    wire.run(4.0)
    leave(wire, "victim")
    client(wire, "impostor", "b", secret="another", known_as="s", epoch=2**62)
    call(wire, "impostor", "subscribe", "all", "n >= 0")
    wire.run(4.0)
    for n in range(3):
        call(wire, "p", "publish", {"n": n})
    wire.carry("a", a.want("b", "b", "b", wire.now_ns))  # now they do
    wire.run(8.0)
    assert machine(a).neighbours["b"].is_up
    assert machine(a).counts["another's name"] > 0
    assert not wire.of("impostor", Deliver)
    assert "s" in machine(a).clients
    client(wire, "victim again", "a", secret="the owner's", known_as="s", epoch=6)
    call(wire, "victim again", "subscribe", "all", "n >= 0")
    wire.run(2.0)
    assert sorted(effect.attributes["n"] for effect in wire.of("victim again", Deliver)) == [0, 1, 2]
    assert machine(b).clients["s"].is_up


def test_a_later_life_with_the_same_key_elsewhere_is_the_same_client() -> None:
    wire = Wire()
    a, _ = pair(wire)
    client(wire, "p", "a", secret="of p")
    client(wire, "s1", "a", secret="of s", known_as="s", epoch=1)
    call(wire, "p", "advertise", "all", "TRUE")
    call(wire, "s1", "subscribe", "all", "n >= 0")
    wire.run(2.0)
    leave(wire, "s1")
    for n in range(3):
        call(wire, "p", "publish", {"n": n})
    client(wire, "s2", "b", secret="of s", known_as="s", epoch=2)
    call(wire, "s2", "subscribe", "all", "n >= 0")
    wire.run(20.0)
    assert sorted(effect.attributes["n"] for effect in wire.of("s2", Deliver)) == [0, 1, 2]
    assert "s" not in machine(a).clients


def test_a_life_that_nobody_has_proved_does_not_count() -> None:
    wire = Wire()
    a = broker(wire, "a")
    client(wire, "first", "a", known_as="s", epoch=2**62)  # without a key: the name is nobody's yet
    call(wire, "first", "subscribe", "all", "n >= 0")
    wire.run(1.0)
    owner = client(wire, "owner", "a", secret="of s", known_as="s", epoch=7)
    call(wire, "owner", "subscribe", "all", "n >= 0")
    call(wire, "owner", "advertise", "all", "TRUE")
    call(wire, "owner", "publish", {"n": 1})
    wire.run(1.0)
    assert isinstance(owner.machine, Client)
    assert owner.machine.epoch == 7
    assert [effect.attributes for effect in wire.of("owner", Deliver)] == [{"n": 1}]
    assert machine(a).clients["s"].key == ClientKey("of s", "s").public


def test_no_subscription_can_announce_a_key() -> None:
    wire = Wire()
    broker(wire, "a")
    client(wire, "s", "a", secret="of s")
    call(wire, "s", "subscribe", "\0is\0AAAA", "n >= 0")
    wire.run(1.0)
    assert wire.nodes["s"].machine.counts["told name"] == 1


@pytest.mark.parametrize("is_away", [False, True])
def test_requests_that_no_rule_allows_any_more_end_and_their_client_is_notified(is_away: bool) -> None:
    wire = Wire()
    tokens = (Token(identity="s", secret="the token of s"),)
    a = broker(wire, "a", tokens=tokens)
    client(wire, "s", "a", token="the token of s")
    for name, filter in (("wide", "n >= 0"), ("narrow", "n > 5")):
        call(wire, "s", "subscribe", name, filter)
    wire.run(1.0)
    if is_away:
        wire.gone.add("a")
        (connection,) = [mine for name, mine in wire.ends if name == "s"]
        wire.cut("s", connection)
        wire.run(1.0)
    assert a.admission is not None
    rule = Rule(identity="s", publish=False, advertise=False, subscribe=Filter.parse("n > 5"))
    admission = msgspec.structs.replace(a.admission, rules=(rule,))
    wire.carry("a", a.readmit(admission, Credentials(), wire.now_ns))
    wire.gone.clear()
    wire.run(12.0)
    assert machine(a).clients["s"].is_up
    assert list(machine(a).gossip.local.of("s")) == ["narrow"]
    assert [(failed.name, failed.code) for failed in wire.of("s", Failed)] == [("wide", "denied")]
