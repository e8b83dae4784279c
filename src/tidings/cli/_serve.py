"""`tidings broker FILE [--name NAME]` without the command tree: who waits for a broker must not wait for its options.

A broker that was killed is started again by this command, and a quarter of what it would load is what reads commands.
So the plain form is recognised here; any other, help and mistakes included, is left to the command tree, which does the
same through `serve_one`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tidings.errors import ConfigurationError, TidingsError

__all__ = ["is_terminal", "serve_at_once", "serve_one"]


def serve_at_once(arguments: Sequence[str]) -> bool:
    """Run the broker that is asked for, if that is all that is asked for; whether it was."""
    match arguments:
        case ["broker", file]:
            name = ""
        case ["broker", file, "--name", name] | ["broker", "--name", name, file]:
            pass
        case _:
            return False
    if file.startswith("-") or name.startswith("-"):
        return False
    try:
        serve_one(Path(file), name, is_text=is_terminal(json=False))
    except TidingsError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    return True


def is_terminal(*, json: bool) -> bool:
    """Whether the log is read by somebody at a terminal who has not asked for JSON."""
    return not json and sys.stderr.isatty()


def serve_one(path: Path, name: str, *, is_text: bool) -> None:
    """Run one broker of a network until a signal ends it; it may go unnamed if it is the only one."""
    from tidings.live import read_network
    from tidings.live.broker import serve
    from tidings.live.operations import Log

    network = read_network(path)
    if not name:
        if len(network.brokers) > 1:
            raise ConfigurationError(
                f"{path} has several brokers: choose one with --name: {', '.join(network.brokers)}"
            )
        name = next(iter(network.brokers))
    network.broker(name)
    serve(network, name, Log(name, is_text=is_text))
