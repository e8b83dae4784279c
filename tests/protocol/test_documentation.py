"""What the page about the protocol says is what the code says: states, messages, bounds."""

import re
from pathlib import Path
from typing import get_args

import msgspec

from tidings.protocol import MOVE_STEPS, PEER_STEPS, TRANSFER_STEPS, BrokerSettings, Budget, ClientSettings, diagram
from tidings.protocol.wire import Message
from tidings.storm import CHECKS

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference"
PAGE = (REFERENCE / "protocol.md").read_text("utf-8")


def test_the_pictures_are_drawn_from_the_tables() -> None:
    for table in (PEER_STEPS, TRANSFER_STEPS, MOVE_STEPS):
        assert f"```mermaid\n{diagram(table)}\n```" in PAGE


def test_every_message_is_explained() -> None:
    rows = PAGE.split("## Messages")[1].split("## ")[0]
    for message in get_args(Message):
        assert f"`{message.__name__}`" in rows


def test_bounds_are_those_of_the_settings() -> None:
    rows = PAGE.split("| bound (`BrokerSettings`)")[1].split("\n\n")[0]
    settings = {"broker": BrokerSettings(name="a"), "client": ClientSettings(name="a")}
    found = 0
    for row in rows.splitlines()[2:]:
        names, values, _ = (cell.strip() for cell in row.strip("|").split("|"))
        who = settings["client" if "(client)" in names else "broker"]
        for name, value in zip(re.findall(r"`(\w+)`", names), values.split("; "), strict=True):
            minutes = re.fullmatch(r"(\d+) min", value)
            wanted = int(minutes[1]) * 60 * 10**9 if minutes else int(value.replace(",", ""))
            assert getattr(who, name) == wanted, name
            found += 1
    assert found >= 10


def test_budgets_are_those_of_the_code() -> None:
    rows = PAGE.split("| budget | default |")[1].split("\n\n")[0].splitlines()[2:]
    reported = {name: row.split("|")[2].strip() for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    budget = msgspec.structs.asdict(Budget())
    assert reported.keys() == budget.keys()
    for name, value in budget.items():
        assert reported[name] == ("no bound" if value is None else f"{value:,g}" if value < 1e6 else f"{value:,}"), name


def test_every_check_of_the_storm_is_explained() -> None:
    page = (REFERENCE / "storm.md").read_text("utf-8")
    for name in CHECKS:
        assert f"| `{name}` |" in page
