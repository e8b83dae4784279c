"""`network.toml`: what is wrong is named with its file, line, key and remedy."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.errors import ConfigurationError
from tidings.live import Address, read_network

GOOD = """
[network]
scheme = "buffer"
strategy = "eb"
drain = "2 s"
[limits]
frame = "500 kB"
rate = "100 /s"
[[broker]]
name = "a"
listen = "127.0.0.1:7001"
neighbours = ["b"]
[[broker]]
name = "b"
listen = "[::1]:7002"
address = "127.0.0.1:7002"
"""
BROKERS = 'broker_token_file = "token"\n'
CLIENTS = '[[token]]\nidentity = "*"\ntoken = "a token of all clients"\n'
TLS = '[tls]\ncertificate = "c"\nkey = "k"\nauthority = "a"\n'


def read(tmp_path: Path, text: str) -> str:
    path = tmp_path / "network.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        read_network(path)
    message = str(caught.value)
    assert message.startswith(f"{path}")
    return message.removeprefix(str(path))


def test_a_network_as_it_should_be(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(GOOD, "utf-8")
    network = read_network(path)
    assert network.links == {"a": frozenset("b"), "b": frozenset("a")}
    assert network.broker("b").reached_at == Address("127.0.0.1", 7002)
    settings = network.settings_of("b")
    assert (settings.scheme, settings.strategy.name, settings.max_frame_bytes) == ("buffer", "eb", 500_000)
    assert network.store_of("a") == tmp_path / "store" / "a"
    with pytest.raises(ConfigurationError, match="there is no broker 'aa'; did you mean `a`"):
        network.broker("aa")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('drain = "2 s"', "drain = 2", ":5: network.drain: 2 has no unit, but a time is expected here"),
        ("drain", "drian", ":5: network.drian: unknown key `drian`; did you mean `drain`?"),
        ('"buffer"', '"bufer"', ":3: network.scheme: 'bufer' is not possible here; did you mean `buffer`?"),
        ('"eb"', '"best"', ":2: network: "),
        (
            'drain = "2 s"',
            'forget = "9 min"',
            ":5: network.forget: subscriptions at a broker that is away are kept for 540 s",
        ),
        ('["b"]', '["c"]', ":12: broker[0].neighbours[0]: there is no broker 'c'; there are: a, b"),
        ('["b"]', '["a"]', ":12: broker[0].neighbours[0]: a link from 'a' to itself"),
        ('name = "b"', 'name = "a"', ":14: broker[1].name: broker 'a' is given twice"),
        ("127.0.0.1:7001", "127.0.0.1", ":11: broker[0].listen: '127.0.0.1' is not an address; write it like"),
        ("127.0.0.1:7001", "127.0.0.1:99999", ":11: broker[0].listen: '127.0.0.1:99999' is not an address"),
        ("[::1]:7002", "::1:7002", ":15: broker[1].listen: '::1:7002': write an IPv6 address in brackets"),
        ("127.0.0.1:7001", "0.0.0.0:7001", ":11: broker[0].listen: 0.0.0.0:7001 can be reached from other machines"),
        (
            "[::1]:7002",
            "127.0.0.1:7001",
            ":15: broker[1].listen: 127.0.0.1:7001 is already where listen of 'a' listens",
        ),
        ("500 kB", "5 kB", ":7: limits.frame: a frame of 5000 bytes: from 81920 to"),
        ('"100 /s"', '"100 kB"', ":8: limits.rate: '100 kB': 'kB' is a unit of size"),
        ("[limits]", "[[rule]]\nidentity = 'x'\n[limits]", ":6: rule[0]: rules need to know who a client is"),
        (
            "[limits]",
            "[tls]\nkey = 'k'\n[limits]",
            ":6: tls: `certificate` is missing; write for example certificate =",
        ),
        ("[limits]", "[trace]\nsample = 0.5\n[limits]", ":6: trace: neither `directory` nor `otlp` is given"),
        (
            "[limits]",
            "[trace]\notlp = '127.0.0.1:4318'\n[limits]",
            ":7: trace.otlp: '127.0.0.1:4318' is not the address of a collector; write it like",
        ),
        (
            "[limits]",
            "[trace]\notlp = 'http://h:99999'\n[limits]",
            ":7: trace.otlp: 'http://h:99999' is not the address",
        ),
        ("[limits]", "[trace]\notlp = 3\n[limits]", ":7: trace.otlp: 3 is not the address of a collector"),
        ("[[broker]]", "[[broke]]", ":9: broke: unknown key `broke`; did you mean `broker`?"),
        ("[network]", "[network", ":2:9: not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in GOOD
    assert read(tmp_path, GOOD.replace(before, after, 1)).startswith(message)


def test_secrets_have_to_be_there(tmp_path: Path) -> None:
    one = '[[broker]]\nname = "a"\nlisten = "127.0.0.1:7001"\n'
    assert "either as `token` or as `token_file`" in read(tmp_path, one + '[[token]]\nidentity = "x"\n')
    missing = read(tmp_path, one + '[[token]]\nidentity = "x"\ntoken_file = "none"\n')
    assert "none cannot be read: No such file or directory" in missing
    (tmp_path / "empty").touch(0o600)
    assert "is empty; `tidings token new --file FILE` writes a token into a file" in read(
        tmp_path, one + '[[token]]\nidentity = "x"\ntoken_file = "empty"\n'
    )
    assert "rules need to know who a client is" in read(tmp_path, one + '[[rule]]\nidentity = "x"\n')
    wrong = (
        one + '[[token]]\nidentity = "x"\ntoken = "sixteen letters!"\n[[rule]]\nidentity = "x"\npublish = "price >"\n'
    )
    assert "rule[0].publish: not a filter" in read(tmp_path, wrong)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_network(tmp_path / "none.toml")


def test_a_scenario_is_told_from_a_network(tmp_path: Path) -> None:
    path = tmp_path / "quotes.toml"
    path.write_text('[topology]\nkind = "explicit"\n')
    with pytest.raises(ConfigurationError, match="this is a scenario, which `tidings simulate`"):
        read_network(path)


def test_tokens_that_can_be_guessed_or_read_are_refused(tmp_path: Path) -> None:
    one = '[[broker]]\nname = "a"\nlisten = "127.0.0.1:7001"\n'
    short = read(tmp_path, one + '[[token]]\nidentity = "x"\ntoken = "fifteen letters"\n')
    assert "token[0].token: a token of 15 characters can be guessed: use at least 16" in short
    file = tmp_path / "token"
    for mode, text, why in (
        (0o644, "long enough to be a token", f"is readable by everybody on this machine: `chmod o= {file}`"),
        (0o600, "x", "a token of 1 characters can be guessed"),
    ):
        file.write_text(text, "utf-8")
        file.chmod(mode)
        for written in (
            '[[token]]\nidentity = "x"\ntoken_file = "token"\n',
            '[network]\nbroker_token_file = "token"\n',
        ):
            assert why in read(tmp_path, one + written)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "network.public: other machines reach the brokers, and anybody there could pose as one of them"),
        (BROKERS, "network.public: other machines reach the brokers, and anybody there could pose as a client"),
        (CLIENTS, "network.public: other machines reach the brokers, and anybody there could pose as one of them"),
        (TLS, "network.public: other machines reach the brokers, and anybody there could pose as a client"),
        (BROKERS + CLIENTS, ""),
        (TLS + CLIENTS, ""),
        (TLS + "client_certificates = true\n", ""),
    ],
    ids=["nothing", "brokers only", "clients only", "tls only", "tokens", "tls and tokens", "certificates"],
)
def test_public_brokers_have_to_know_who_comes(tmp_path: Path, more: str, message: str) -> None:
    """`public = true` passed `--check` without TLS or tokens."""
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("a token of all brokers", "utf-8")
    names = "".join(f'[[broker]]\nname = "{each}"\nlisten = "0.0.0.0:700{each}"\n' for each in (1, 2))
    text = f"[network]\npublic = true\n{more}\n{names}"
    path = tmp_path / "network.toml"
    path.write_text(text, "utf-8")
    for arguments in (["broker", str(path), "--check"], ["up", str(path), "--check"], ["up", str(path)]):
        if message:
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 2
            assert message in " ".join(done.output.split())
    if not message:
        assert read_network(path).document.network.public


def test_a_token_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    run = CliRunner().invoke
    printed = {run(app, ["token", "new"]).output.strip() for _ in range(5)}
    assert len(printed) == 5
    assert all(len(token) >= 40 for token in printed)
    file = tmp_path / "brokers" / "token"
    assert run(app, ["token", "new", "--file", str(file)]).output.strip() == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    kept = file.read_text("utf-8")
    again = run(app, ["token", "new", "--file", str(file), "--json"])
    assert again.exit_code == 2
    assert file.read_text("utf-8") == kept  # nobody loses a token by making one
    text = '[network]\nbroker_token_file = "brokers/token"\n[[broker]]\nname = "a"\nlisten = "127.0.0.1:7001"\n'
    path = tmp_path / "network.toml"
    path.write_text(text, "utf-8")
    assert read_network(path).broker_token == kept.strip()


def test_brokers_that_are_given_no_token_make_one(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(GOOD, "utf-8")
    network = read_network(path)
    assert network.shared_token(is_made=False) is None
    token = network.shared_token()
    assert token is not None
    assert {read_network(path).shared_token() for _ in range(3)} == {token}
    assert network.implied_token_file.stat().st_mode & 0o777 == 0o600
    network.implied_token_file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="is readable by everybody on this machine"):
        network.shared_token()


def test_machines_have_their_own_ports_and_an_unknown_host_stops_only_a_network_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    (tmp_path / "token").write_text("a token of all brokers", "utf-8")
    (tmp_path / "token").chmod(0o600)
    brokers = "".join(
        f'[[broker]]\nname = "{name}"\nlisten = "0.0.0.0:7001"\naddress = "{name}.invalid:7001"\n' for name in "ab"
    )
    path.write_text(f"[network]\npublic = true\n{BROKERS}{CLIENTS}{brokers}", "utf-8")
    checked = CliRunner().invoke(app, ["broker", str(path), "--check"])
    assert checked.exit_code == 0, checked.output
    assert checked.stderr.count("is dialled until it answers") == 2
    stopped = CliRunner().invoke(app, ["up", str(path), "--check"])
    assert stopped.exit_code == 2
    assert f"{path}: the host of broker 'a', a.invalid:7001, cannot be resolved" in stopped.stderr
