"""The effect of each change: R of every subscription now, after each single change, and after all of them.

The caller gives a list of mappings: the `name`, the `reliability` (R by subscription; None or NaN: not known), and
optionally a `description` and `moves`, a list of mappings with `client`, `origin` and `target`. Two names are reserved:
`now` is the state before any change (the measured values unless given), `all` is all changes together.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from tidings.errors import InputError
from tidings.report.figures._report import Change, Changes, Move

__all__ = ["MEETS", "changes_of"]

MEETS: Final = 0.99
NOW: Final = "now"
TOGETHER: Final = "all"


def changes_of(
    given: Sequence[Mapping[str, Any]],
    measured: Mapping[str, float],
    matched: Mapping[str, int],
    names: Collection[str],
) -> Changes | None:
    """None if nothing is given. `measured` is R by subscription, if anything matched; `names` are shown."""
    shares = _checked(given)
    known = {each["name"]: each for each in given}
    if not shares:
        return None
    now = shares.pop(NOW, dict(measured))
    compared = [name for name in now if name in measured and all(name in each for each in shares.values())]
    if not compared:
        raise InputError("changes: no subscription of the run is in all of them; give R by the names of the scores")
    made = {
        name: _change(name, known.get(name, {}), each, compared, matched, names)
        for name, each in ((NOW, now), *shares.items())
    }
    first, together = made.pop(NOW), made.pop(TOGETHER, None)
    return Changes(compared=len(compared), now=first, single=tuple(made.values()), together=together)


def _checked(given: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for number, each in enumerate(given):
        if not isinstance(each.get("name"), str) or not isinstance(each.get("reliability"), Mapping):
            raise InputError(f"changes[{number}]: give a name, and reliability as a mapping of subscriptions to R")
        if each["name"] in found:
            raise InputError(f"changes[{number}]: there are two changes named {each['name']!r}")
        own = {
            name: float(share) for name, share in each["reliability"].items() if share is not None and share == share
        }
        wrong = next((name for name, share in own.items() if not 0.0 <= share <= 1.0), None)
        if wrong is not None:
            raise InputError(f"changes[{number}]: R of {wrong!r} is {own[wrong]!r}, but a share is from 0 to 1")
        if any(not {"client", "origin", "target"} <= set(move) for move in each.get("moves", ())):
            raise InputError(f"changes[{number}]: each of the moves needs client, origin and target")
        found[each["name"]] = own
    return found


def _change(
    name: str,
    given: Mapping[str, Any],
    shares: Mapping[str, float],
    compared: Sequence[str],
    matched: Mapping[str, int],
    names: Collection[str],
) -> Change:
    total = sum(matched[each] for each in compared)
    shown = set(names)
    return Change(
        name=name,
        description=str(given.get("description", "")),
        reliability=sum(matched[each] * shares[each] for each in compared) / total if total else 0.0,
        meeting=sum(shares[each] >= MEETS for each in compared),
        by_subscription={each: shares[each] for each in compared if each in shown},
        moves=tuple(
            Move(client=str(move["client"]), origin=str(move["origin"]), target=str(move["target"]))
            for move in given.get("moves", ())
        ),
    )
