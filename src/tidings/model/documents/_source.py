"""Where things stand in a TOML text: the line of every key and element, so that an error can point at it.

The standard TOML reader forgets positions. This scanner runs over a text that reader has already accepted, so it only
has to follow structure: table headers, dotted keys, strings, arrays, inline tables. A path is a tuple of keys and array
positions; an array of tables counts its headers.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from tidings.errors import ScenarioError

__all__ = ["FILE_BYTES_MAX", "Place", "Source"]

KeyPath = tuple[str | int, ...]

FILE_BYTES_MAX = 16_000_000
"""A scenario file beyond this is refused: nobody wrote it by hand, and reading it would take minutes."""

_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SEPARATORS = re.compile(r"(?:[ \t\r\n,]+|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\n#]*")
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)


class Source:
    """A scenario text with its name; reads it as TOML and knows the line of each key."""

    def __init__(self, text: str, name: str, *, directory: Path | None = None, has_lines: bool = True) -> None:
        self.text = text
        self.name = name
        self.directory = Path() if directory is None else directory
        """Where relative paths in it begin."""
        self.has_lines = has_lines
        """Whether anybody can look at the lines of the text."""
        self._lines: dict[KeyPath, int] | None = None

    @classmethod
    def read(cls, path: Path) -> "Source":
        """The text of a file; a ScenarioError says why it cannot be read."""
        name = str(path)
        try:
            if path.is_file() and path.stat().st_size > FILE_BYTES_MAX:
                raise ScenarioError(f"larger than {FILE_BYTES_MAX // 10**6} MB: not a scenario", place=name)
            return cls(path.read_bytes().decode("utf-8-sig"), name, directory=path.parent)
        except FileNotFoundError:
            raise ScenarioError("there is no such file; give the path of a scenario in TOML", place=name) from None
        except IsADirectoryError:
            raise ScenarioError("is a directory; give the path of a scenario file in it", place=name) from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            message = f"byte {error.start} is not UTF-8; save the file as UTF-8 text"
            raise ScenarioError(message, place=f"{name}:{line}") from None
        except OSError as error:
            raise ScenarioError(f"cannot be read: {error.strerror or error}", place=name) from None

    def table(self) -> dict[str, Any]:
        """The text as TOML; a ScenarioError gives line and column of a syntax error."""
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            message, line, column = _syntax_error(str(error), self.text)
            raise ScenarioError(f"not valid TOML: {message}", place=f"{self.name}:{line}:{column}") from None
        except ValueError as error:  # a number with thousands of digits
            raise ScenarioError(f"not valid TOML: {error}", place=self.name) from None
        except RecursionError:
            raise ScenarioError("not a scenario: arrays are nested too deeply", place=self.name) from None

    @property
    def root(self) -> "Place":
        return Place(self, ())

    def line(self, path: KeyPath) -> int:
        """The line of this key, or of the nearest table around it that is written down."""
        if self._lines is None:
            self._lines = _Scanner(self.text).scan()
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)


class Place:
    """One key of a scenario, to read from and to complain about; `place / "key"` and `place / 0` go further in."""

    def __init__(self, source: Source, path: KeyPath) -> None:
        self.source = source
        self.path = path

    def __truediv__(self, step: str | int) -> "Place":
        return Place(self.source, (*self.path, step))

    def __str__(self) -> str:
        where = f"{self.source.name}:{self.source.line(self.path)}" if self.source.has_lines else self.source.name
        return f"{where}: {self.key}" if self.path else where

    @property
    def key(self) -> str:
        """The path as people write it: `publishers[0].rate`."""
        text = ""
        for step in self.path:
            text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
        return text

    def fail(self, message: str) -> NoReturn:
        """Raise the error that belongs here."""
        raise ScenarioError(message, place=str(self)) from None


def _syntax_error(message: str, text: str) -> tuple[str, int, int]:
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL)
    if found:
        return found.group(1), int(found.group(2)), int(found.group(3))
    lines = text.split("\n")
    return message.removesuffix(" (at end of document)"), len(lines), len(lines[-1]) + 1


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.lines: dict[KeyPath, int] = {}
        self.elements: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self._skip(_BLANK)
        while self.at < len(self.text):
            if self._take("[["):
                table = self._header(is_array=True)
                self._take("]]")
            elif self._take("["):
                table = self._header(is_array=False)
                self._take("]")
            else:
                self._key_value(table)
            self._skip(_BLANK)
        return self.lines

    def _header(self, *, is_array: bool) -> KeyPath:
        keys = self._keys()
        path: KeyPath = ()
        for number, key in enumerate(keys, start=1):
            path = (*path, key)
            self.lines.setdefault(path, self.line)
            if is_array and number == len(keys):
                self.elements[path] = self.elements.get(path, -1) + 1
            if path in self.elements:
                path = (*path, self.elements[path])
                self.lines.setdefault(path, self.line)
        return path

    def _key_value(self, table: KeyPath) -> None:
        path = table
        for key in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, self.line)
        self._take("=")
        self._skip(_SPACE)
        self._value(path)

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._skip(_SPACE)
            bare = _BARE_KEY.match(self.text, self.at)
            if bare:
                self._advance(bare.end())
                keys.append(bare.group())
            else:
                begin = self.at
                self._string()
                keys.append(next(iter(tomllib.loads(f"{self.text[begin : self.at]} = 0"))))
            self._skip(_SPACE)
            if not self._take("."):
                return keys

    def _value(self, path: KeyPath) -> None:
        if self._take("["):
            number = 0
            while not self._closed("]"):
                self.lines[(*path, number)] = self.line
                self._value((*path, number))
                number += 1
        elif self._take("{"):
            while not self._closed("}"):
                self._key_value(path)
        elif not self._string():
            self._skip(_SCALAR)

    def _closed(self, bracket: str) -> bool:
        self._skip(_SEPARATORS)
        return self._take(bracket)

    def _string(self) -> bool:
        for pattern in _STRINGS:
            found = pattern.match(self.text, self.at)
            if found:
                self._advance(found.end())
                return True
        return False

    def _take(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self._advance(self.at + len(token))
        return True

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found:
            self._advance(found.end())

    def _advance(self, end: int) -> None:
        self.line += self.text.count("\n", self.at, end)
        self.at = end
