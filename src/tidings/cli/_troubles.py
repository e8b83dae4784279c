"""The verdict on a live network in words, for `tidings status` and `tidings top`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidings.live.operations import Trouble, Verdict

__all__ = ["STYLES", "duration", "print_verdict", "trouble_lines"]

NAMES_SHOWN: Final = 5
TROUBLES_SHOWN: Final = 10
STYLES: Final = {"OK": "green", "late": "yellow", "trouble": "yellow", "down": "red"}
_MARKS: Final = {"critical": "red", "warning": "yellow", "notice": "dim"}


def print_verdict(console: Any, verdict: "Verdict") -> None:
    """One line, then the troubles, the gravest first."""
    from rich.text import Text

    console.print(Text(verdict.line, style=STYLES[verdict.state]), soft_wrap=True)
    for trouble in verdict.troubles[:TROUBLES_SHOWN]:
        what, *more = trouble_lines(trouble)
        console.print(Text(f"\n{what}", style=_MARKS[trouble.gravity]), soft_wrap=True)
        for line in more:
            console.print(Text(f"  {line}"), soft_wrap=True)
    if len(verdict.troubles) > TROUBLES_SHOWN:
        console.print(f"\nand {len(verdict.troubles) - TROUBLES_SHOWN:,} more: see --json")


def trouble_lines(trouble: "Trouble") -> Iterator[str]:
    """What, for how long, why, who, and what to do."""
    since = "" if trouble.since_s is None else f", for {duration(trouble.since_s)}"
    yield f"{trouble.gravity}: {trouble.what}{since}"
    yield f"why: {trouble.why}"
    if trouble.affected:
        yield f"affected: {_names(trouble.subscriptions, trouble.subscriptions_left_off)}"
    if trouble.publishers:
        yield f"publishers: {_names(trouble.publishers)}"
    yield f"do: {trouble.remedy}"
    if trouble.command:
        yield f"  $ {trouble.command}"


def _names(names: Sequence[str], more: int = 0) -> str:
    shown = names[:NAMES_SHOWN]
    more += len(names) - len(shown)
    return ", ".join([*shown, *([f"{more:,} more"] if more else [])])


def duration(seconds: float) -> str:
    """A duration as people say it."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
