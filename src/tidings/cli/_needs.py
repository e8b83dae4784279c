"""Which extra each command needs, and the message when it is not installed: one place for all commands."""

from collections.abc import Sequence
from typing import Final

from tidings.errors import TidingsError
from tidings.extras import missing_extra

__all__ = ["NEEDS", "as_missing_extra"]

NEEDS: Final = {
    **dict.fromkeys(("up", "status", "top", "broker", "reload", "token", "certificates", "bench"), "broker"),
    **dict.fromkeys(("subscribe", "publish", "filter", "doctor", "examples"), "cli"),
    **dict.fromkeys(("pipeline", "sweep"), "spark"),
    **dict.fromkeys(
        ("import", "report", "order", "scenario", "predict", "plan", "what-if", "simulate", "place", "profile"), "lab"
    ),
    **dict.fromkeys(("autopilot", "compare", "demo", "rehearse", "storm", "reproduce"), "lab"),
}
"""The smallest extra with which a command can do all it offers."""


def as_missing_extra(error: ImportError, arguments: Sequence[str]) -> TidingsError | None:
    """The error to show when a command could not import a package of an extra; None if the error is our own bug."""
    command = next((word for word in arguments if not word.startswith("-")), "")
    found = missing_extra(error, NEEDS.get(command, "cli"), f"tidings {command}".strip())
    return found if isinstance(found, TidingsError) else None
