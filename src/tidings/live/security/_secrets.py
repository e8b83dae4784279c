"""Secrets in files: tokens, the token that brokers make for themselves, and clients' own secrets.

A file that others may read is refused, with the remedy. Files made here are readable by their owner only, and appear
complete or not at all.
"""

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from tidings.errors import ConfigurationError

__all__ = [
    "LEAST_CHARACTERS",
    "client_secret_file",
    "is_open",
    "kept_secret",
    "new_secret",
    "read_secret",
    "write_secret",
]

LEAST_CHARACTERS: Final = 16
"""The least length of a token, in characters."""
_BYTES: Final = 32
_STATE_VARIABLE: Final = "XDG_STATE_HOME"


def new_secret() -> str:
    """A random secret of 43 characters."""
    return secrets.token_urlsafe(_BYTES)


def read_secret(path: Path) -> str:
    """The secret in a file; ConfigurationError if it holds none or others may read it."""
    try:
        is_everybodys = is_open(path)
        secret = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if is_everybodys:
        raise ConfigurationError(f"{path} is readable by everybody on this machine: `chmod o= {path}`")
    if not secret:
        raise ConfigurationError(f"{path} is empty; `tidings token new --file FILE` writes a token into a file")
    return secret


def is_open(path: Path) -> bool:
    """Whether anybody but its owner and its group may access a file."""
    return bool(path.stat().st_mode & stat.S_IRWXO)


def write_secret(path: Path, secret: str) -> bool:
    """Write a secret to a new file that only its owner may read; False if the file exists already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{secret}\n")
        os.link(temporary, path)  # the first process wins
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


def kept_secret(path: Path) -> str:
    """The secret in a file, which is created if it does not exist."""
    try:
        if not path.exists():
            write_secret(path, new_secret())
    except OSError as error:
        raise ConfigurationError(f"{path}: no secret can be kept there: {error.strerror or error}") from None
    return read_secret(path)


def client_secret_file(name: str) -> Path:
    """The default file of a durable client's secret, in the user's state directory."""
    given = os.environ.get(_STATE_VARIABLE)
    state = Path(given) if given else Path.home() / ".local" / "state"
    readable = "".join(character if character.isalnum() or character in "-_." else "_" for character in name)
    # Different names have different files, whatever their characters.
    return state / "tidings" / "secrets" / f"{readable[:100]}-{name.encode().hex()[:80]}"
