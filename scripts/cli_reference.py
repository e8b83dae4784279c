"""The reference of all commands, as --help has them: python scripts/cli_reference.py > docs/reference/cli.md"""

import re
from collections.abc import Iterator
from typing import Any

import typer

from tidings.cli._app import app
from tidings.cli._needs import NEEDS
from tidings.extras import install_line

INTRODUCTION = """\
# Commands

Every command with its options, as `--help` shows them. Results go to standard output, everything else to standard
error. Exit codes: 0 done, 1 failed, 2 bad input (a wrong option included), 130 interrupted.

These options have the same meaning everywhere:

| option | what it does |
| --- | --- |
"""
SHARED = ("--json", "--verbose", "--master", "--remote", "--environment", "--mapping", "--clock-tolerance")
"""Explained once; the commands that have them only name them."""


def page() -> str:
    """The whole page."""
    commands = dict(_commands(typer.main.get_command(app), ("tidings",)))
    shared: dict[str, str] = {}
    sections: list[str] = []
    panel = None
    for path, command in commands.items():
        if (found := _panel(path[1])) != panel:
            panel = found
            sections.append(f"## {panel}\n")
        options = [each for each in command.params if each.param_type_name == "option" and "--help" not in each.opts]
        shared |= {each.opts[0]: _row(each) for each in options if each.opts[0] in SHARED}
        sections.append(_section(path, command, options))
    rows = [shared[name] for name in SHARED if name in shared]
    return INTRODUCTION + "\n".join(rows) + "\n\n" + "\n".join(sections)


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name in command.list_commands(None):
            yield from _commands(command.commands[name], (*path, name))
    else:
        yield path, command


def _panel(name: str) -> str:
    """The panel of `tidings --help` that has this command."""
    root: Any = typer.main.get_command(app)
    return str(root.commands[name].rich_help_panel)


def _section(path: tuple[str, ...], command: Any, options: list[Any]) -> str:
    arguments = [each.metavar or each.name.upper() for each in command.params if each.param_type_name == "argument"]
    lines = [f"### `{' '.join(path)}`", "", f"    {' '.join((*path, *arguments))}", ""]
    for paragraph in (command.help or "").strip().split("\n\n"):
        lines += [_plain(paragraph), ""]
    lines += [f"Needs `{install_line(NEEDS[path[1]])}`.", ""]
    own = [each for each in options if each.opts[0] not in SHARED]
    if own:
        lines += ["| option | what it does |", "| --- | --- |", *(_row(each) for each in own), ""]
    others = [f"`{each.opts[0]}`" for each in options if each.opts[0] in SHARED]
    if others:
        lines += [f"{'And' if own else 'Options:'} {', '.join(others)}.", ""]
    return "\n".join(lines)


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    says = _plain(option.help or "")
    default = option.default
    is_shown = option.show_default is not False and isinstance(default, str | int | float) and not option.is_flag
    if is_shown and str(default):
        says += f" Default: {_plain(str(default))}."
    return f"| {names} | {says} |"


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("|", "\\|")).strip()


if __name__ == "__main__":
    print(page(), end="")
