"""Nobody comes as somebody else: attacks by raw bytes on broker processes, and what their victims notice of them."""

import asyncio
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.live.conftest import Place, all_up, run, running, until
from tests.live.raw import NONCE, Fake, Raw, refusal
from tests.live.test_security import TLS, certified

from tidings.live import DeniedError, Network, connect, read_network
from tidings.live._errors import ConnectionLostError
from tidings.live.operations._orders import move_clients
from tidings.live.operations._query import ask_network
from tidings.live.security._certificates import make_certificates
from tidings.protocol import wire
from tidings.protocol.node import Answer, ClientKey, Preamble, Proof

EPOCH = 2**62
"""The latest life that a message can speak of."""


def log_of(place: Place, event: str) -> list[dict[str, Any]]:
    return [line for line in place.logs() if line["event"] == event]


async def impostors(address: str, name: str, owner: ClientKey) -> set[str]:
    """Come as a client by its name in every way that needs no secret of its; the codes by which one is refused."""
    other = ClientKey("somebody else's", name)
    anything = other.sign(b"anything")
    return {
        await refusal(address, Preamble("client", name)),
        await refusal(address, Preamble("client", name, "a guess")),
        await refusal(address, Preamble("client", name, nonce=NONCE)),
        await refusal(address, Preamble("client", name, nonce=NONCE, key=other.public), Proof(anything)),
        await refusal(address, Preamble("client", name, nonce=NONCE, key=owner.public), Proof(anything)),
        await refusal(address, Preamble("client", name, nonce=NONCE, key=owner.public), Proof(b"")),
        await refusal(address, Preamble("client", name, key=owner.public)),
    }


def test_without_tokens_a_name_belongs_to_who_came_first(place: Place) -> None:
    """By its name alone anybody got a client's durable events, and with a late epoch locked it out for good."""

    async def work() -> None:
        network = place.write("a", "b")
        place.start("up", str(network.path))
        await all_up(network)
        secret, owner = "the victim's secret", ClientKey("the victim's secret", "victim")
        where = [place.address("a"), place.address("b")]
        async with connect(where[0], name="p") as p:
            async with connect(where[0], name="victim", durable=True, secret=secret) as victim:
                events = await victim.subscribe("n >= 0", name="all")
                await p.publish({"n": 0})
                assert (await anext(events)).attributes == {"n": 0}
                for address in where:  # wherever it comes to
                    await until_refused(address, "victim")
                    assert await impostors(address, "victim", owner) == {"identity"}
                await p.publish({"n": 1})
                assert (await anext(events)).attributes == {"n": 1}
            for n in range(2, 5):
                await p.publish({"n": n})
            for address in where:  # nor while it is away
                assert await impostors(address, "victim", owner) == {"identity"}
                for other in ({}, {"secret": "another"}):
                    with pytest.raises(DeniedError, match="former secret or secret_file") as denied:
                        async with connect(address, name="victim", **other):
                            pass
                    assert denied.value.code == "identity"
            # Its owner comes back, at the other broker even, and gets what was kept for it.
            async with connect(where[1], name="victim", durable=True, secret=secret) as victim:
                events = await victim.subscribe("n >= 0", name="all")
                assert [(await anext(events)).attributes["n"] for _ in range(3)] == [2, 3, 4]
        assert all("'victim'" in line["why"] for line in log_of(place, "denied"))
        assert len(log_of(place, "denied")) >= 30

    run(work())


async def until_refused(address: str, name: str) -> None:
    """Wait until a broker has heard whose name this is."""
    async with asyncio.timeout(30.0):
        while not await refusal(address, Preamble("client", name)):
            await asyncio.sleep(0.05)


def test_an_epoch_of_somebody_without_a_key_does_not_lock_out_the_owner(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        place.start("up", str(network.path))
        await all_up(network)
        raw = await Raw.to(place.address("a"))
        raw.send(Preamble("client", "victim"))  # before anybody has come by that name
        assert (await raw.answer()).code == ""
        hello = wire.Hello(wire.OLDEST_VERSION, "victim", "client", EPOCH, 10)
        frame = await raw.frame()
        assert frame is not None
        greeting = wire.decode(frame)
        assert isinstance(greeting, wire.Hello)
        subscribe = wire.Subscribe(greeting.epoch, 0, wire.Entry("all", "TRUE", None, 1.0, 0))
        raw.send(wire.encode(hello), wire.encode(subscribe))
        while not isinstance(wire.decode(await raw.frame() or b""), wire.Done):
            pass
        async with connect(place.address("a"), name="victim") as victim:
            events = await victim.subscribe("n >= 0", name="all")
            await victim.publish({"n": 1})
            assert (await anext(events)).attributes == {"n": 1}
            assert await raw.is_closed()  # and whoever had the name without a key is out
            assert await refusal(place.address("a"), Preamble("client", "victim")) == "identity"
        while await refusal(place.address("a"), Preamble("client", "victim")):  # whoever leaves, leaves its name
            await asyncio.sleep(0.05)

    run(work())


def test_a_durable_client_keeps_its_secret_where_its_user_keeps_state(place: Place, state: Path) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network):
            for _ in range(2):
                async with connect(place.address("a"), name="s/1", durable=True) as s:
                    await s.subscribe("n >= 0", name="all")
            (file,) = (state / "tidings" / "secrets").iterdir()
            assert file.stat().st_mode & 0o077 == 0
            async with connect(place.address("a"), name="s/1") as s:  # the same, to end it
                await s.subscribe("n >= 0", name="all")
            own = place.directory / "own"
            for _ in range(2):
                async with connect(place.address("a"), name="t", durable=True, secret_file=own) as t:
                    await t.subscribe("n >= 0", name="all")
            file.unlink()
            async with connect(place.address("a"), name="s/1", durable=True) as s:  # its name was given up
                await s.subscribe("n >= 0", name="all")

    run(work())


def test_the_keys_of_clients_outlive_their_broker(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        process = place.start("broker", str(network.path), "--name", "a")
        await all_up(network)
        async with connect(place.address("a"), name="victim", durable=True, secret="of its own") as victim:
            await victim.subscribe("n >= 0", name="all")
        process.kill()
        await asyncio.to_thread(process.wait)
        place.start("broker", str(network.path), "--name", "a")
        await all_up(network)
        owner = ClientKey("of its own", "victim")
        assert await impostors(place.address("a"), "victim", owner) == {"identity"}
        async with connect(place.address("a"), name="victim", durable=True, secret="of its own") as victim:
            await victim.subscribe("n >= 0", name="all")

    run(work())


def start(place: Place, network: Network, name: str) -> "subprocess.Popen[bytes]":
    return place.start("broker", str(network.path), "--name", name)


@pytest.mark.parametrize("has_token", [False, True], ids=["nothing said", "a token"])
def test_nobody_comes_as_a_broker(place: Place, has_token: bool) -> None:
    """Without a token any process of the machine could be b2; then 41 of 402 events arrived."""

    async def work() -> None:
        place.secret("token", "of the brokers alone")
        network = place.write("b1", "b2", network='broker_token_file = "token"' if has_token else "")
        start(place, network, "b1")
        second = start(place, network, "b2")
        await all_up(network)
        second.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(second.wait, 30) == 0
        address, said = place.address("b1"), Preamble("broker", "b2", nonce=NONCE)
        assert await refusal(address, Preamble("broker", "b2")) == "token"
        assert await refusal(address, Preamble("broker", "b2", "a guess")) == "token"
        assert await refusal(address, said, Proof(b"")) == "token"
        assert await refusal(address, said, Proof(bytes(32))) == "token"
        assert await refusal(address, msgspec.structs.replace(said, key=ClientKey("x", "b2").public)) == "token"
        raw = await Raw.to(address)  # what b1 proves to others is no proof that one is b2
        raw.send(said)
        challenge = await raw.answer()
        assert challenge.text == "b1"
        assert not challenge.proof  # who merely connects is shown nothing that was made with the token
        raw.close()
        orders = Preamble("operator", "operator", detail=msgspec.msgpack.encode([{"p": "b2"}]))
        assert await refusal(address, orders) == "token"
        start(place, network, "b2")
        await all_up(network)
        assert {line["code"] for line in log_of(place, "denied")} == {"token"}

    run(work())


@pytest.mark.parametrize("answers", ["yes", "challenge", "echo"])
def test_who_listens_in_a_dead_neighbours_place_learns_nothing_and_is_no_neighbour(place: Place, answers: str) -> None:
    """The brokers' token was sent in clear to whoever listened there."""

    async def work() -> None:
        token = "of the brokers alone"
        place.secret("token", token)
        network = place.write("b1", "b2", network='broker_token_file = "token"', more=CLIENTS)
        challenge = Answer(text="b2", speaks=3, nonce=NONCE, wants="token")
        fake = Fake(
            *{
                "yes": (Answer(speaks=3),),
                "challenge": (challenge, Answer(speaks=3, proof=bytes(32))),
                "echo": (challenge, Answer(speaks=3)),
            }[answers]
        )
        async with fake.listening(place.ports["b2"]):
            start(place, network, "b1")
            frames = 1 if answers == "yes" else 2
            await until(lambda: len(fake.frames) >= 2 * frames)  # and it tries again
            while not (status := await ask_network(network))[0]["up"]:
                await asyncio.sleep(0.05)  # it may ask its neighbour before it answers us
            assert status[0]["absent"] == ["b2"]  # it did not take it for its neighbour
            assert not status[1]["up"]
            with pytest.raises((DeniedError, ConnectionLostError)):
                async with connect(place.address("b2"), name="c", token=CLIENT_TOKEN, connect_s=2.0):
                    pass
            await move_clients(network, {"nobody": "b1"})
            await until(lambda: bool(fake.heard))
        assert token.encode() not in b"".join(fake.heard)
        assert CLIENT_TOKEN.encode() not in b"".join(fake.heard)
        await until(lambda: bool(log_of(place, "neighbour away")))
        (away, *_) = log_of(place, "neighbour away")
        assert "may be an impostor" in away["why"] or "not ask" in away["why"]

    run(work())


CLIENT_TOKEN = "of all the clients"
CLIENTS = f'[[token]]\nidentity = "*"\ntoken = "{CLIENT_TOKEN}"\n'
TWO = """
[[token]]
identity = "one"
token = "the token of the first"
[[token]]
identity = "two"
token = "the token of the second"
"""
RULE = '[[rule]]\nidentity = "{}"\nsubscribe = "{}"\n'


def rewrite(network: Network, before: str, after: str) -> None:
    text = network.path.read_text("utf-8")
    assert before in text
    network.path.write_text(text.replace(before, after), "utf-8")


def test_a_token_that_is_taken_away_ends_its_connections(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", more=TWO)
        process = start(place, network, "a")
        await all_up(network)
        async with (
            connect(place.address("a"), name="one", token="the token of the first") as one,
            connect(place.address("a"), name="two", token="the token of the second") as two,
        ):
            first, second = await one.subscribe("n >= 0"), await two.subscribe("n >= 0")
            await two.publish({"n": 1})
            assert (await anext(first)).attributes == (await anext(second)).attributes == {"n": 1}
            rewrite(network, "the token of the first", "another token by now")
            process.send_signal(signal.SIGHUP)
            with pytest.raises(DeniedError, match="needs a token, and has none or a wrong one"):
                await anext(first)
            await two.publish({"n": 2})
            assert (await anext(second)).attributes == {"n": 2}  # over the same connection
        (line,) = log_of(place, "revoked")
        assert (line["peer"], line["kind"]) == ("one", "client")
        assert len([line for line in log_of(place, "connected") if line["peer"] == "two"]) == 1

    run(work())


def test_a_rule_that_is_taken_away_ends_what_it_allowed(place: Place) -> None:
    async def work() -> None:
        rules = RULE.format("one", "n >= 0") + '[[rule]]\nidentity = "two"\npublish = true\n'
        network = place.write("a", more=TWO + rules)
        process = start(place, network, "a")
        await all_up(network)
        async with (
            connect(place.address("a"), name="one", token="the token of the first", durable=True) as one,
            connect(place.address("a"), name="two", token="the token of the second") as two,
        ):
            wide, narrow = await one.subscribe("n >= 0", name="wide"), await one.subscribe("n > 5", name="narrow")
            await two.publish({"n": 6})
            assert (await anext(wide)).attributes == (await anext(narrow)).attributes == {"n": 6}
            rewrite(network, 'subscribe = "n >= 0"', 'subscribe = "n > 5"')
            process.send_signal(signal.SIGHUP)
            with pytest.raises(DeniedError, match="no rule allows 'one' to subscribe to this"):
                await anext(wide)
            await two.publish({"n": 7})
            assert (await anext(narrow)).attributes == {"n": 7}
            (status,) = await ask_network(network)
            assert [each["subscription"] for each in status["subscribers"]] == ["one/narrow"]

    run(work())


def test_a_certificate_that_is_revoked_ends_its_connections(place: Place) -> None:
    async def work() -> None:
        folder = place.directory / "certificates"
        network = certified(place, "a", "b", "one", "two", more="client_certificates = true\n")
        revoke(folder)
        rewrite(network, "[tls]\n", '[tls]\nrevoked = "certificates/revoked.pem"\n')
        network = read_network(network.path)
        brokers = [start(place, network, name) for name in ("a", "b")]
        await all_up(network)

        def options(name: str) -> dict[str, Any]:
            files = {"certificate": folder / f"{name}.pem", "key": folder / f"{name}.key"}
            return {"authority": folder / "authority.pem", "name": name, "connect_s": 1.0, **files}

        async with (
            connect(place.address("a"), **options("one")) as one,
            connect(place.address("b"), **options("two")) as two,
        ):
            await one.subscribe("n >= 0")
            stays = await two.subscribe("n >= 0")
            revoke(folder, "one")
            for each in brokers:
                each.send_signal(signal.SIGHUP)
            await until(lambda: bool(log_of(place, "revoked")))
            await two.publish({"n": 1})
            assert (await anext(stays)).attributes == {"n": 1}
            with pytest.raises((ConnectionLostError, DeniedError)):
                async with connect(place.address("b"), **options("one")):
                    pass
            assert not one.is_connected
        await asyncio.sleep(0.5)  # a dial that was given up is closed by the event loop
        assert {line["peer"] for line in log_of(place, "revoked")} == {"one"}

    run(work())


def revoke(folder: Path, *names: str) -> None:
    """The authority's list of the certificates that it has taken back."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    authority = x509.load_pem_x509_certificate((folder / "authority.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "authority.key").read_bytes(), None)
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
    made = made.last_update(now - datetime.timedelta(minutes=1)).next_update(now + datetime.timedelta(days=1))
    for name in names:
        serial = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes()).serial_number
        made = made.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        )
    signed = made.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    (folder / "revoked.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def test_silent_connections_with_tls_are_counted_and_shown_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stayed for ever, and no limit counted them."""
    monkeypatch.setattr("tidings.protocol.node._node.GRACE_NS", 1_000_000_000)

    async def work() -> None:
        make_certificates(place.directory / "certificates", ("a",))
        network = place.write("a", more=TLS + "[limits]\nconnections = 3\n")
        authority = place.directory / "certificates" / "authority.pem"
        async with running(network) as nodes:
            silent = [await Raw.to(place.address("a")) for _ in range(3)]
            await until(lambda: len(nodes["a"].driver.node._sessions) == 3)
            one_more = await Raw.to(place.address("a"))
            assert await one_more.is_closed()
            assert all([await raw.is_closed() for raw in silent])
            await until(lambda: not nodes["a"].driver.node._sessions)
            log = nodes["a"].log._stream
            assert log is not None
            assert "there are 3 connections, which is the limit" in log.getvalue()  # type: ignore[attr-defined]
            assert "did not identify itself within 1 s" in log.getvalue()  # type: ignore[attr-defined]
            async with connect(place.address("a"), name="c", authority=authority) as c:
                await c.publish({"n": 1})

    run(work())


def test_rules_cap_what_is_offered_how_long_events_live_and_how_fast_they_come(place: Place) -> None:
    """A subscriber could offer any price, and so was served before everybody else."""

    async def work() -> None:
        caps = 'price = 5\nlifetime = "2 s"\nrate = "50 /s"\n'
        network = place.write("a", more=f'{TWO}[[rule]]\nidentity = "one"\nsubscribe = true\npublish = true\n{caps}')
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="one", token="the token of the first") as one,
        ):
            await one.subscribe("n >= 0", price=5.0)
            with pytest.raises(DeniedError, match="offers 6 for an event, but may offer 5 at most") as denied:
                await one.subscribe("n >= 1", price=6.0)
            assert denied.value.code == "price"
            with pytest.raises(DeniedError, match="may live for 2 s, but this one asks for 3") as denied:
                await one.publish({"n": 1}, lifetime_s=3.0)
            assert denied.value.code == "lifetime"
            await one.publish({"n": 1}, lifetime_s=2.0)
            await one.publish({"n": 1})
            (session,) = nodes["a"].driver.node._sessions.values()
            assert session.purse is not None
            assert session.purse.budget.rate_per_s == 50.0
            with pytest.raises(DeniedError, match="needs a token"):
                async with connect(place.address("a"), name="two", token="the token of the first"):
                    pass

    run(work())
