"""A key of a network file, changed in its text."""

from pathlib import Path

import pytest

from tidings.autopilot._network_file import MARK, use_strategy, with_strategy
from tidings.errors import InputError
from tidings.model.policies import DEFAULT_STRATEGY

FILE = """# our network
[network]   # of the trading floor
scheme = "buffer"
strategy = 'eb'  # since March

# brokers
[[broker]]
name = "a"
listen = "127.0.0.1:7001"
"""


def test_only_the_one_key_changes_and_comments_stay() -> None:
    changed = with_strategy(FILE, "fifo")
    assert changed == FILE.replace("'eb'", '"fifo"')
    assert with_strategy(changed, "eb") == FILE.replace("'eb'", '"eb"')


@pytest.mark.parametrize(
    "text", [FILE.replace("strategy = 'eb'  # since March\n", ""), FILE[FILE.index("# brokers") :]]
)
def test_a_key_that_was_not_there_is_marked_and_goes_again(text: str) -> None:
    changed = with_strategy(text, "fifo")
    assert f'strategy = "fifo"{MARK}\n' in changed
    again = with_strategy(changed, "pc")
    assert f'strategy = "pc"{MARK}\n' in again
    back = with_strategy(again, DEFAULT_STRATEGY)
    assert MARK not in back
    assert [line for line in back.split("\n") if line not in ("", "[network]")] == [
        line for line in text.split("\n") if line not in ("", "[network]")
    ]


@pytest.mark.parametrize(
    "text",
    [
        'network = { strategy = "eb" }\n',
        'network.strategy = "eb"\n',
        '[network]\n"strategy" = "eb"\n',
        '[network]\nstrategy = """eb"""\n',
        "[network\n",
    ],
)
def test_what_cannot_be_changed_safely_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="cannot be changed in this text"):
        with_strategy(text, "fifo", place="network.toml")


def test_the_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(FILE, "utf-8")
    path.chmod(0o640)
    assert use_strategy(path, "fifo") == FILE
    assert path.read_text("utf-8") == FILE.replace("'eb'", '"fifo"')
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["network.toml"]
    with pytest.raises(InputError, match="cannot be read"):
        use_strategy(tmp_path / "no.toml", "fifo")
