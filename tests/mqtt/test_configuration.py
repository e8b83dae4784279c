"""The keys of doors and bridges in a network file."""

from pathlib import Path

import pytest
from tests.live.conftest import run, running
from tests.mqtt.conftest import Doors

from tidings.errors import ConfigurationError
from tidings.live import Network, read_network

BROKER = '[[broker]]\nname = "b1"\nlisten = "127.0.0.1:7001"\n'


def read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "network.toml"
    path.write_text(text, "utf-8")
    read_network(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('mqtt = "0.0.0.0:1883"\n', "public = true"),
        ('mqtt = "127.0.0.1:7001"\n', "already where listen"),
        ('mqtt = "1883"\n', "not an address"),
        ('mqtt_tls = "127.0.0.1:8883"\n', "needs certificates"),
        ('[[bridge]]\nname = "x"\nbroker = "b1"\naddress = "127.0.0.1:1884"\nin = ["a"]\n', "no MQTT door"),
        ('mqtt = "127.0.0.1:1883"\n[[bridge]]\nname = "x"\nbroker = "b1"\naddress = "127.0.0.1:1884"\n', "neither"),
        (
            'mqtt = "127.0.0.1:1883"\n'
            + 2 * '[[bridge]]\nname = "x"\nbroker = "b1"\naddress = "127.0.0.1:1884"\nout = ["a"]\n',
            "given twice",
        ),
    ],
)
def test_what_cannot_be_is_complained_about(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        read(tmp_path, BROKER + text)


def test_a_door_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(BROKER, "utf-8")
    assert not read_network(path).broker("b1").has_mqtt


def test_the_example_is_valid() -> None:
    network = read_network(Path(__file__).parents[2] / "examples" / "live" / "mqtt.toml")
    assert network.broker("b1").has_mqtt


def test_how_long_clients_may_be_away_bounds_sessions_of_both_kinds(doors: Doors) -> None:
    async def work(network: Network) -> None:
        async with running(network) as nodes:
            assert nodes["a"].machine.settings.client_timeout_ns == 172_800 * 10**9
            assert nodes["a"].door is not None
            assert nodes["a"].door.gateway.longest(2**32 - 1) == 172_800

    run(work(doors.write("a", more='[limits]\naway = "2 d"\n')))
