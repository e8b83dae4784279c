"""One key of a network file, changed in its text: comments, order and spacing stay as they are.

Only the strategy of `[network]` is changed. A key that was not there is added as a line of its own, marked as the
autopilot's; it is removed again when the default returns. The changed text is parsed and compared: anything but the one
key would be a bug, and is refused. The file is replaced at once, with its permissions.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from tidings.errors import InputError
from tidings.model.policies import DEFAULT_STRATEGY

__all__ = ["replace_text", "use_strategy", "with_strategy"]

MARK: Final = "  # tidings autopilot"
_TABLE: Final = re.compile(r"^\s*\[network\]\s*(#.*)?$")
_ANY_TABLE: Final = re.compile(r"^\s*\[")
_KEY: Final = re.compile(r"""^(\s*strategy\s*=\s*)("[^"]*"|'[^']*')(.*)$""")


def use_strategy(path: Path, strategy: str) -> str:
    """Change the file; the text before."""
    try:
        before = path.read_text("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    replace_text(path, with_strategy(before, strategy, place=str(path)))
    return before


def replace_text(path: Path, text: str) -> None:
    """Replace the file at once, with its permissions."""
    temporary = path.with_name(f"_{path.name}.autopilot")
    try:
        temporary.write_text(text, "utf-8")
        temporary.chmod(path.stat().st_mode & 0o7777)
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def with_strategy(text: str, strategy: str, *, place: str = "network file") -> str:
    """The text with this strategy; an InputError if it is written in a way that cannot be changed safely."""
    lines = text.split("\n")
    table = next((n for n, line in enumerate(lines) if _TABLE.match(line)), None)
    if table is None:
        changed = f'[network]\nstrategy = "{strategy}"{MARK}\n\n{text}'
    else:
        end = next((n for n in range(table + 1, len(lines)) if _ANY_TABLE.match(lines[n])), len(lines))
        key = next((n for n in range(table + 1, end) if _KEY.match(lines[n])), None)
        if key is None:
            lines.insert(table + 1, f'strategy = "{strategy}"{MARK}')
        elif lines[key].endswith(MARK) and strategy == DEFAULT_STRATEGY:
            del lines[key]
        else:
            lines[key] = _KEY.sub(lambda found: f'{found[1]}"{strategy}"{found[3]}', lines[key])
        changed = "\n".join(lines)
    if _but_strategy(text) != (rest := _but_strategy(changed)) or rest is None or _strategy(changed) != strategy:
        raise InputError(
            f"{place}: the strategy cannot be changed in this text; write it as a line of its own below [network]: "
            f'strategy = "{strategy}"'
        )
    return changed


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _but_strategy(text: str) -> dict[str, Any] | None:
    """The document without the strategy; a table that is empty without it counts as absent."""
    found = _parsed(text)
    if found is None:
        return None
    network = {key: value for key, value in found.pop("network", {}).items() if key != "strategy"}
    return {**found, **({"network": network} if network else {})}


def _strategy(text: str) -> str:
    found = _parsed(text) or {}
    return str(found.get("network", {}).get("strategy", DEFAULT_STRATEGY))
