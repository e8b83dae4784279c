"""Whether somebody is there, found out within a bounded time: Spark itself tries for minutes before it gives up."""

import socket
from collections.abc import Callable, Sequence
from threading import Thread
from typing import TypeVar

from tidings.errors import ConfigurationError

__all__ = ["call_within", "require_reachable"]

REACH_WAIT_S = 5.0

Answer = TypeVar("Answer")


def require_reachable(addresses: Sequence[tuple[str, int]], *, what: str, remedy: str) -> None:
    """Raise unless one of the addresses accepts a connection; no address at all is nothing to try."""
    failures = []
    for host, port in addresses:
        try:
            with socket.create_connection((host, port), timeout=REACH_WAIT_S):
                return
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            failures.append(f"{host}:{port} ({reason})")
    if failures:
        raise ConfigurationError(f"no {what} answers at {', '.join(failures)}; {remedy}")


def call_within(limit_s: float, call: Callable[[], Answer], failure: str) -> Answer:
    """What `call` returns, or an error that begins with `failure` if it raises or takes longer than `limit_s`.

    A call that takes too long goes on in a thread that does not keep the process alive.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if answers:
        return answers[0]
    why = str(errors[0]).strip() if errors else f"nothing came back within {limit_s:g} s"
    raise ConfigurationError(f"{failure}: {why}") from (errors[0] if errors else None)
