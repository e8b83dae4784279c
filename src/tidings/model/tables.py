"""The tables of a pipeline run on this machine, found by the last commit in its directory.

    DIR/commits/000000007.json    {"run": "000007-1b9d", "tables": {"links": "runs/000007-1b9d/tables/links", ...}}

Readers without Spark use this module; the pipeline writes commits to any file system (pipeline/_run_store.py).
"""

from pathlib import Path

import msgspec

from tidings.errors import InputError

__all__ = ["Commit", "has_table", "table_place"]


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The current run; `tables` are paths relative to the directory of the runs."""

    run: str
    tables: dict[str, str]


def has_table(directory: Path, name: str) -> bool:
    """Whether the last complete run in a directory has this table."""
    return name in _tables(directory)


def table_place(directory: Path, name: str) -> Path:
    """The path of this table of the last complete run; an InputError names what is missing."""
    place = _tables(directory).get(name)
    if place is None or not (directory / place).exists():
        where = directory / "commits" if place is None else directory / place
        raise InputError(
            f"{directory}: there is no table {name!r} in {where}; `tidings pipeline run TRACE --out DIR` makes it"
        )
    return directory / place


def _tables(directory: Path) -> dict[str, str]:
    commits = sorted((directory / "commits").glob("[0-9]*.json"))
    # Through Spark Connect a commit is a folder with one file in it.
    files = [file for commit in commits for file in ([commit] if commit.is_file() else sorted(commit.glob("part-*")))]
    if not files:
        return {}
    try:
        return msgspec.json.decode(files[-1].read_bytes(), type=Commit).tables
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"{files[-1]}: not the record of a pipeline run ({error}); give its directory") from None
