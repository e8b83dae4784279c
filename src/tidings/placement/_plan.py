"""A plan: which clients should move where, and what is to be expected of it; as a value, and as a file.

The file is JSON in UTF-8, one document:

- `format` is "tidings.plan" and `version` 1; a reader refuses what it does not know rather than guess;
- `made_from`: the directories of the trace, and how much of it was looked at;
- `aim`: objective, weight, hysteresis, and whether publishers were placed together (`joint`);
- `moves`, the best first: `client` ("publisher" or "subscriber"), `name`, `from`, `to`, `benefit` and what is
  `expected` of this move by itself;
- `stay`: how many of each kind are where they should be;
- `expected`: what all moves together change.

Every expected figure has `now` and `then`. Rates are per second, delays in milliseconds, `busiest` is the utilisation
of the busiest broker, `on_time` a share of what was promised (null: nothing was promised a deadline).
"""

from collections import Counter
from pathlib import Path
from typing import Final, Literal

import msgspec

from tidings.errors import InputError
from tidings.placement._decision import Objective

__all__ = ["Change", "Client", "Expected", "MadeFrom", "Move", "PlacementPlan", "PlanAim", "read_plan", "write_plan"]

FORMAT: Final = "tidings.plan"
VERSION: Final = 1

Client = Literal["publisher", "subscriber"]


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure as it is, and as it is to be expected."""

    now: float
    then: float

    @property
    def share(self) -> float:
        """How much it changes, as a share of what it is; 0 where that is nothing."""
        return (self.then - self.now) / self.now if self.now else 0.0


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a move, or all of them, changes: of the client's own events and deliveries, or of everybody's."""

    messages_per_s: Change
    delay_ms: Change
    busiest: Change
    on_time: Change | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One client that should be elsewhere; `benefit` is what the moves are ranked by.

    That is by objective: messages a second that brokers need not handle; seconds that deliveries of a second are sooner
    in all; deliveries a second that come on time in addition.
    """

    client: Client
    name: str
    origin: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    benefit: float
    expected: Expected


class PlanAim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the plan is for."""

    objective: Objective
    weight: float
    hysteresis: float
    joint: bool = False


class MadeFrom(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The trace: its directories, the time that it covers, and how many events and deliveries were looked at."""

    traces: list[str]
    from_ns: int
    until_ns: int
    events: int
    deliveries: int


class PlacementPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it; `stay` counts clients by kind that should stay where they are."""

    format: Literal["tidings.plan"] = FORMAT
    version: Literal[1] = VERSION
    made_from: MadeFrom
    aim: PlanAim
    moves: list[Move]
    stay: dict[Client, int]
    expected: Expected

    def homes(self, client: Client) -> dict[str, str]:
        """Where the clients of this kind that move should be, by name."""
        return {move.name: move.target for move in self.moves if move.client == client}


class _Head(msgspec.Struct):
    format: str = ""
    version: int = 0


def read_plan(path: str | Path) -> PlacementPlan:
    """The plan in a file; InputError if it is none, or one of a version that is not known."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        head = msgspec.json.decode(text, type=_Head)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: not a plan: {error}; `tidings place TRACES --out FILE` writes one") from None
    if head.format != FORMAT:
        raise InputError(f"{path}: not a plan: its format is {head.format!r}, not {FORMAT!r}")
    if head.version != VERSION:
        raise InputError(
            f"{path}: is a plan of version {head.version}, and this Tidings knows version {VERSION}: "
            "make it again with `tidings place`, or upgrade"
        )
    try:
        plan = msgspec.json.decode(text, type=PlacementPlan)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: has a fault: {error}") from None
    _check(plan, path)
    return plan


def _check(plan: PlacementPlan, path: str | Path) -> None:
    counted = Counter((move.client, move.name) for move in plan.moves)
    for (client, name), times in counted.items():
        if times > 1:
            raise InputError(f"{path}: {client} {name!r} moves {times} times: a plan moves a client once")
    for move in plan.moves:
        if move.origin == move.target:
            raise InputError(f"{path}: {move.client} {move.name!r} would move from {move.origin!r} to itself")


def write_plan(plan: PlacementPlan, path: str | Path) -> None:
    """Write the file under a name beside it, and rename it when it is complete."""
    place = Path(path)
    temporary = place.with_name(f"_{place.name}")
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
        temporary.replace(place)
    except OSError as error:
        raise InputError(f"{place}: cannot be written: {error.strerror or error}") from None
