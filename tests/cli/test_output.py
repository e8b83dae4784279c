"""What commands print: tables in narrow terminals, and events as one document."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.cli._output import print_table
from tidings.rehearsal._ports import free_ports

PATIENCE_S = 300.0
COMMAND = [sys.executable, "-m", "tidings"]


def printed(width: int, *rows: tuple[str, ...]) -> str:
    table = Table(box=None, pad_edge=False)
    table.add_column("subscriber")
    for heading in ("matched events", "on time", "95 % interval"):
        table.add_column(heading, justify="right")
    table.add_column("path", overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        print_table(console, table)
    return capture.get()


ROW = ("trader-1", "1,234,567", "100.0 %", "51.8 to 60.3 %", "Warsaw Gdansk Szczecin Poznan")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_figure_is_cut_or_broken(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(width, ROW) + capsys.readouterr().out
    assert all(figure in text for figure in ROW[:4])
    assert "…" not in text


def test_a_wide_terminal_has_one_line_for_each_row() -> None:
    lines = printed(200, ROW, ROW).splitlines()
    assert len(lines) == 3
    assert "matched events" in lines[0]


def test_one_document_needs_an_end() -> None:
    done = CliRunner().invoke(app, ["subscribe", "127.0.0.1:1", "--json"])
    assert done.exit_code == 2
    assert "add --count or --seconds" in json.loads(done.stdout)["error"]["message"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    file = tmp_path / "network.toml"
    file.write_text(f'[[broker]]\nname = "b"\nlisten = "127.0.0.1:{port}"\n', "utf-8")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*COMMAND, "broker", str(file)], stdout=log, stderr=log)
    try:
        ends_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "log").read_text("utf-8")
                assert time.monotonic() < ends_s
                time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_events_as_one_document(broker: str, tmp_path: Path) -> None:
    environment = os.environ | {"HOME": str(tmp_path)}
    arguments = [*COMMAND, "subscribe", broker, "price > 10", "--count", "2", "--json"]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as reader:
        assert reader.stderr is not None
        assert reader.stderr.readline() == "subscribed\n"
        lines = "".join(f'{{"attributes": {{"price": {price}}}}}\n' for price in (5, 11, 12))
        subprocess.run([*COMMAND, "publish", broker], input=lines, text=True, check=True, env=environment)
        stdout, _ = reader.communicate(timeout=PATIENCE_S)
    events = json.loads(stdout)["events"]
    assert [event["attributes"] for event in events] == [{"price": 11}, {"price": 12}]
