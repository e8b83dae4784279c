"""Settings: what one cell of a sweep writes into the scenario, at which keys.

A key is the path in the TOML file with dots: `policies.scheduling`, `links.loss`. `publishers` and `subscribers` are
groups: `publishers.rate` is the rate of every group, `publishers.exchange.rate` that of the group of this name, and
`link[0].loss` that of the first of the `[[link]]` tables. A key with a unit at its end (`rate_per_s`, `max_delay_ms`,
`size_kb`) takes plain numbers. Every setting is read as a whole scenario before anything runs, so a wrong key or value
is one error that names it, in the scenario's own words.
"""

import copy
import csv
import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tidings.errors import InputError, ScenarioError
from tidings.model.scenario import Scenario
from tidings.pipeline.sweeps._written import read_value, read_values, to_toml, write_value

__all__ = ["CELLS_MAX", "Base", "Setting", "grid", "read_list", "read_vary"]

CELLS_MAX = 1_000_000
UNITS = {
    "_kb_per_s": "kB/s",
    "_s_per_kb": "s/kB",
    "_ms_per_kb": "ms/kB",
    "_per_min": "/min",
    "_per_s": "/s",
    "_kb": "kB",
    "_km": "km",
    "_ms": "ms",
    "_us": "us",
    "_s": "s",
}
FREE = ("attributes", "parameters")  # tables whose keys are the user's own: whatever they end in is no unit
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_LINE = re.compile(r":\d+")


@dataclass(frozen=True)
class Setting:
    """What is written where, in the order that it was given; values are those of TOML."""

    values: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return " ".join(f"{key}={write_value(value)}" for key, value in self.values) or "as it is"

    def as_dict(self) -> dict[str, Any]:
        return dict(self.values)

    def flags(self) -> list[str]:
        """The options of `tidings sweep` that give this setting and no other."""
        return [word for key, value in self.values for word in ("--vary", f"{key}={write_value(value)}")]


class Base:
    """The scenario that is varied."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.place = str(path)
        self.scenario = Scenario.load(path)  # says what is wrong with the file itself
        self._table = tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))

    @property
    def seed(self) -> int:
        return self.scenario.document.seed

    def table(self, setting: Setting) -> dict[str, Any]:
        """The scenario's table with the setting written into it."""
        table = copy.deepcopy(self._table)
        for key, value in setting.values:
            _write(table, key, value)
        return table

    def text(self, setting: Setting) -> str:
        """The scenario with the setting written into it, as TOML."""
        return to_toml(self.table(setting))

    def check(self, settings: Iterable[Setting]) -> None:
        """Read the scenario under every setting; an InputError names the one that is wrong, and the key."""
        for setting in settings:
            name = f"{self.place} with {setting}"
            try:
                Scenario.parse(self.text(setting), name)
            except ScenarioError as error:
                # The lines are those of a text that nobody wrote; the key says where.
                raise InputError(name + _LINE.sub("", str(error).removeprefix(name), count=1)) from None


def read_vary(text: str) -> tuple[str, tuple[Any, ...]]:
    """The key and the values of one `--vary key=value,value,...`."""
    key, equals, values = text.partition("=")
    key = key.strip()
    if not equals or not values.strip() or not key:
        raise InputError(f"--vary {text!r} is not key=values; write for example policies.scheduling=fifo,eb")
    _require_variable(key)
    try:
        return key, read_values(values)
    except InputError as error:
        raise InputError(f"--vary {key}: {error}") from None


def read_list(path: str | PathLike[str]) -> list[Setting]:
    """One setting for each row of a CSV file (keys in its first line), or for each object of a JSON-lines file."""
    file = Path(path)
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the list of settings cannot be read: {error}") from None
    suffix = file.suffix.lower()
    if suffix == ".csv":
        rows = _csv_rows(text, str(path))
    elif suffix in (".jsonl", ".ndjson", ".json"):
        rows = _json_rows(text, str(path))
    else:
        raise InputError(f"{path}: a list of settings is CSV (.csv) or JSON lines (.jsonl), not {suffix or 'this'}")
    if not rows:
        raise InputError(
            f"{path}: there is no setting in it; write the keys in the first line, a setting in each other"
        )
    for row in rows:
        for key in row:
            _require_variable(key)
    return [Setting(tuple(row.items())) for row in rows]


def grid(varied: Sequence[tuple[str, tuple[Any, ...]]], listed: Sequence[Setting] = ()) -> list[Setting]:
    """Every combination of a listed setting (or none) with one value of each key; the last key changes fastest."""
    keys = [key for key, _ in varied]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"--vary {key} is given twice; write all its values in one")
        if any(key in row.as_dict() for row in listed):
            raise InputError(f"{key} is both in the list and in --vary; leave it out of one of them")
    count = math.prod(len(values) for _, values in varied) * max(1, len(listed))
    if count > CELLS_MAX:
        raise InputError(f"these are {count:,} settings; at most {CELLS_MAX:,} are possible in one sweep")
    combined = [tuple(zip(keys, values, strict=True)) for values in itertools.product(*(each for _, each in varied))]
    settings = [Setting(row.values + values) for row in (listed or [Setting(())]) for values in combined]
    seen = set()
    for setting in settings:
        if str(setting) in seen:
            raise InputError(f"the setting {setting} is there twice; leave one out")
        seen.add(str(setting))
    return settings


def _require_variable(key: str) -> None:
    if key == "seed":
        raise InputError("the seed is not varied like other keys; write --seeds 10 --seed 1 for the seeds 1 to 10")
    if not key or _STEP.sub("", key).strip(".") or ".." in key or key.startswith(".") or key.endswith("."):
        raise InputError(f"{key!r} is not a key of a scenario; write it with dots, such as policies.scheduling")


def _csv_rows(text: str, place: str) -> list[dict[str, Any]]:
    reader = csv.reader(text.splitlines(), strict=True)
    rows: list[dict[str, Any]] = []
    keys: list[str] | None = None
    try:
        for row in reader:
            if not row:
                continue
            if keys is None:
                keys = [key.strip() for key in row]
                continue
            if len(row) != len(keys):
                raise InputError(
                    f"{place}:{reader.line_num}: {len(row)} values for {len(keys)} keys; give each its own"
                )
            rows.append({key: read_value(value) for key, value in zip(keys, row, strict=True)})
    except csv.Error as error:
        raise InputError(f"{place}:{reader.line_num}: not CSV: {error}") from None
    return rows


def _json_rows(text: str, place: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{place}:{number}: not JSON: {error}") from None
        if not isinstance(row, dict) or not row:
            raise InputError(f'{place}:{number}: a setting is an object such as {{"policies.scheduling": "fifo"}}')
        rows.append(row)
    return rows


def _write(table: dict[str, Any], key: str, value: Any) -> None:
    steps: list[str | int] = [int(number) if number else name for name, number in _STEP.findall(key)]
    _write_at(table, steps, value, key)


def _write_at(here: Any, steps: list[str | int], value: Any, key: str) -> None:
    step, rest = steps[0], steps[1:]
    if isinstance(here, list):
        _write_in_list(here, step, rest, value, key)
    elif not isinstance(here, dict) or isinstance(step, int):
        where = key[: len(key) - len(_path(steps))].rstrip(".")
        kind = "an array" if isinstance(step, int) else "a table"
        raise InputError(
            f"--vary {key}: `{where}` is written as {write_value(here)}, which is not {kind}; vary `{where}` itself, "
            'with values such as {name="ebpc",r=0.5}'
        )
    elif rest:
        _write_at(here.setdefault(step, {}), rest, value, key)
    else:
        is_free = step in here or any(f"{table}." in key for table in FREE)
        name, written = (step, value) if is_free else _with_unit(step, value)
        here[name] = written


def _write_in_list(here: list[Any], step: str | int, rest: list[str | int], value: Any, key: str) -> None:
    """Into the element of this number or name, or else into all of them."""
    if isinstance(step, int):
        if step >= len(here) or not rest:
            what = "give a key in it" if not rest else f"there are {len(here)}, counted from 0"
            raise InputError(f"--vary {key}: [{step}] is not possible; {what}")
        _write_at(here[step], rest, value, key)
        return
    named = [each for each in here if isinstance(each, Mapping) and each.get("name") == step]
    if named and rest:
        _write_at(named[0], rest, value, key)
        return
    if not here:
        raise InputError(f"--vary {key}: the scenario has none of these; write one into the file first")
    for each in here:
        names = [group["name"] for group in here if isinstance(group, Mapping) and "name" in group]
        if rest and isinstance(each, Mapping) and step not in each and step not in FREE:
            raise InputError(f"--vary {key}: there is no {step!r}; the groups are {', '.join(names)}")
        _write_at(each, [step, *rest], value, key)


def _with_unit(name: str, value: Any) -> tuple[str, Any]:
    """`rate_per_s`, 5 -> `rate`, "5 /s"; names and values without a unit as they are."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        for suffix, unit in UNITS.items():
            if name.endswith(suffix) and len(name) > len(suffix):
                return name.removesuffix(suffix), f"{value!r} {unit}"
    return name, value


def _path(steps: Sequence[str | int]) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
