"""The costs of changes, in units of one edit of a configuration file.

| kind | cost | why |
| --- | --- | --- |
| scheduling, scheme | 1 | one line in a configuration file, as easily reverted |
| move | 3 for each client that moves | a client has to connect elsewhere, perhaps farther away |
| capacity | 10 for each added multiple of the present capacity: twice as fast is 10, 1.5 times is 5 | it is bought |
| lifetime | 20 for each added multiple of the present deadline, for each client | a concession by users |

Every cost can be changed: `Costs(move=1)`, a TOML file with a table `[costs]`, or `--cost move=1`.
"""

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tidings.errors import ConfigurationError, InputError
from tidings.planning._changes import AllowLonger, Change, LiveLonger, SpeedUpBroker, SpeedUpLink

__all__ = ["Costs"]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The price of each kind of change; all are above 0, so a plan has no unnecessary change."""

    scheduling: float = 1.0
    scheme: float = 1.0
    ordering: float = 1.0
    move: float = 3.0
    capacity: float = 10.0
    lifetime: float = 20.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < math.inf:
                raise ConfigurationError(f"the cost of {field.name} is {value!r}, but must be a number above 0")

    def of(self, change: Change) -> float:
        """The cost of this change."""
        price = float(getattr(self, change.kind))
        if isinstance(change, SpeedUpBroker | SpeedUpLink | AllowLonger | LiveLonger):
            return price * (change.factor - 1.0)
        return price

    def total(self, changes: Iterable[Change]) -> float:
        return math.fsum(self.of(change) for change in changes)

    def changed(self, prices: Mapping[str, Any], *, place: str = "costs") -> "Costs":
        """A copy with some prices replaced; a ConfigurationError names an unknown kind."""
        known = [field.name for field in fields(self)]
        for name in prices:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
                raise ConfigurationError(f"{place}: there is no kind of change {name!r}; {hint}")
        return replace(self, **prices)

    @classmethod
    def load(cls, path: Path) -> "Costs":
        """The default prices, replaced by the table `[costs]` of a TOML file."""
        try:
            table = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}); give a TOML file with a table [costs]"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not TOML: {error}") from None
        if not isinstance(table.get("costs"), dict):
            raise InputError(
                f"{path}: there is no table [costs]; write [costs] and below it, for example, capacity = 20"
            )
        return cls().changed(table["costs"], place=str(path))
