"""Networks of brokers with MQTT doors."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import Place, place, state

from tidings.live import Network, read_network
from tidings.rehearsal._ports import free_ports

__all__ = ["place", "state"]

QUICK = 'ping = "100 ms"\nsilence = "600 ms"\nrefresh = "500 ms"\ndrain = "1 s"\n'


class Doors:
    """A network whose brokers, in a row, have doors."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ports: dict[tuple[str, str], int] = {}

    def write(self, *names: str, keys: tuple[str, ...] = ("mqtt",), more: str = "", network: str = "") -> Network:
        ports = iter(free_ports(len(names) * (1 + len(keys))))
        text = f"[network]\n{QUICK}{network}\n{more}\n"
        for number, name in enumerate(names):
            self.place.ports[name] = next(ports)
            beside = [] if number + 1 == len(names) else [names[number + 1]]
            text += (
                f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{self.place.ports[name]}"\nneighbours = {beside}\n'
            )
            for key in keys:
                self.ports[name, key] = next(ports)
                text += f'{key} = "127.0.0.1:{self.ports[name, key]}"\n'
        self.path.write_text(text, "utf-8")
        return read_network(self.path)

    @property
    def path(self) -> Path:
        return self.place.directory / "network.toml"

    def port(self, name: str, key: str = "mqtt") -> int:
        return self.ports[name, key]


@pytest.fixture
def doors(place: Place) -> Doors:
    """A network to be written."""
    return Doors(place)


def needed(program: str) -> Any:
    """A mark for tests of a program that may not be there."""
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")
