"""What the documentation shows is what happens: examples in prose, in docstrings, and commands with their files."""

import doctest
import importlib
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEED_SPARK = ("filters.md", "pipeline-input.md")  # their own tests run them: test_reference.py in their rooms
WITH_EXAMPLES = [page for page in PAGES if ">>>" in page.read_text("utf-8") and page.name not in NEED_SPARK]
WITH_COMMANDS = [page for page in PAGES if re.search(r"^\s*\$ tidings ", page.read_text("utf-8"), re.MULTILINE)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_python_examples(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("module", ["tidings.matching._index"])
def test_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_commands_print_what_the_page_shows(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``$ tidings ...`` lines run; the indented or fenced lines below one are the beginning of what it prints."""
    from tidings.cli._app import app

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    blocks = re.findall(r"```(?:console|text)\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    ran = 0
    for block in blocks:
        for command, shown in re.findall(r"^\$ (tidings .*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            result = CliRunner().invoke(app, shlex.split(command)[1:])
            printed = [line.rstrip() for line in result.stdout.splitlines()]
            wanted = [line.rstrip() for line in shown.splitlines() if line.strip() != "..."]
            assert printed[: len(wanted)] == wanted, command
            ran += 1
    assert ran


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(page.name[:4]) for page in sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_contribution_guide_names_files_that_exist() -> None:
    for page in (ROOT / "docs" / "contributing").glob("*.md"):
        for path in re.findall(r"`((?:src|tests|docs|scripts)/[\w./-]+)`", page.read_text("utf-8")):
            is_made = path == "docs/site" or Path(path).stem in ("_name", "test_name")
            assert is_made or (ROOT / path).exists(), f"{name_of(page)} names {path}"
