"""Commands in the documentation are real ones: the command exists, has those options, and its examples are there."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tidings.cli._app import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(page: Path) -> Iterator[str]:
    """Lines to be typed: of fenced blocks, of indented ones, and between backticks."""
    text = page.read_text("utf-8")
    blocks = re.findall(r"^```(?:console|sh|text)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"^    (.*)$", prose, re.MULTILINE)
    lines += [span.replace("\n", " ") for span in re.findall(r"`(tidings [^`]+)`", prose)]
    for line in lines:
        found = re.match(r"(?:\$ )?(tidings [a-z].*)", line.strip())
        if found:
            yield found[1].strip()


def words_of(command: str) -> list[str]:
    """The command's words, up to the first that is to be filled in or is the shell's."""
    words = []
    for word in shlex.split(command, comments=True)[1:]:
        if word.startswith("[") or word in ("...", "|", ">", "&", "&&"):
            break
        words.append(word)
    return words


def resolve(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words name, and its own words."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"there is no command {rest[0]!r}"
        command = command.commands[rest.pop(0)]
    return command, rest


def is_list_of_commands(command: str) -> bool:
    """`tidings filter explain|covers|test`: several in one."""
    return bool(re.match(r"tidings (\w+ )?[a-z-]+(\|[a-z-]+)+", command))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_real(page: Path) -> None:
    for text in commands(page):
        if is_list_of_commands(text):
            continue
        command, rest = resolve(words_of(text))
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}
        used = [word.partition("=")[0] for word in rest if re.match(r"--[a-z]", word)]
        assert [name for name in used if name not in known] == [], f"{name_of(page)}: {text}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_example_files_are_there(page: Path) -> None:
    for text in commands(page):
        for word in words_of(text):
            if (
                re.match(r"examples/[\w./-]+$", word) and "shops.tml" not in word
            ):  # which shows what an error looks like
                assert (ROOT / word).exists(), f"{name_of(page)}: {text}"


def test_every_command_is_told_of_in_the_guide_or_the_reference() -> None:
    told = "\n".join(page.read_text("utf-8") for page in PAGES if page.name != "cli.md")
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"tidings {name}" in told, name


def test_the_reference_of_commands_is_what_help_says() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from cli_reference import page  # type: ignore[import-not-found,unused-ignore]
    finally:
        sys.path.pop(0)
    written = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    assert written == page(), "write it anew: python scripts/cli_reference.py > docs/reference/cli.md"


def test_there_are_commands_to_check() -> None:
    assert sum(1 for page in PAGES for _ in commands(page)) > 60
