"""A broker is started without the command tree, and does and says what the command tree would."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidings.cli import _serve

RUN = [sys.executable, "-c", "import sys; sys.argv[0] = 'tidings'; from tidings.cli import main; main()"]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["broker", "n.toml"], ("n.toml", "")),
        (["broker", "n.toml", "--name", "b1"], ("n.toml", "b1")),
        (["broker", "--name", "b1", "n.toml"], ("n.toml", "b1")),
        (["broker", "--help"], None),
        (["broker", "n.toml", "--check"], None),
        (["broker", "n.toml", "--name", "--json"], None),
        (["broker", "n.toml", "more"], None),
        (["broker"], None),
        (["up", "n.toml"], None),
        ([], None),
    ],
)
def test_the_plain_form_is_served_and_any_other_left(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], asked: tuple[str, str] | None
) -> None:
    served: list[Any] = []
    monkeypatch.setattr(_serve, "serve_one", lambda path, name, **_: served.append((str(path), name)))
    assert _serve.serve_at_once(arguments) == (asked is not None)
    assert served == ([] if asked is None else [asked])


@pytest.mark.parametrize("more", [(), ("--name", "nobody")])
def test_a_mistake_is_told_as_the_command_tree_tells_it(tmp_path: Path, more: tuple[str, ...]) -> None:
    path = tmp_path / "network.toml"
    text = '[[broker]]\nname = "b1"\nlisten = "127.0.0.1:1"\n[[broker]]\nname = "b2"\nlisten = "127.0.0.1:2"\n'
    path.write_text(text, "utf-8")
    plain, by_tree = (
        subprocess.run([*RUN, "broker", str(path), *each], capture_output=True, text=True, check=False)
        for each in (more, (*more, "--json"))
    )
    assert plain.returncode == by_tree.returncode == 2
    assert plain.stdout == ""
    assert plain.stderr == by_tree.stderr
    assert plain.stderr.startswith("error: ")
