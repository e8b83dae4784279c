"""Secrets in files: tokens, the token that brokers make for themselves, and clients' own.

A file that everybody may read holds no secret: it is refused, with the remedy. What is made here can be read by its
owner only, and is there whole or not at all.
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
"""So long a token has to be."""
_BYTES: Final = 32
_STATE_VARIABLE: Final = "XDG_STATE_HOME"


def new_secret() -> str:
    """43 characters that nobody can guess."""
    return secrets.token_urlsafe(_BYTES)


def read_secret(path: Path) -> str:
    """The secret in a file; ConfigurationError if it holds none, or everybody may read it."""
    try:
        is_everybodys = is_open(path)
        secret = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if is_everybodys:
        raise ConfigurationError(f"{path} is open to everybody on this machine: `chmod o= {path}`")
    if not secret:
        raise ConfigurationError(f"{path} is empty; `tidings token new --file FILE` writes a token into a file")
    return secret


def is_open(path: Path) -> bool:
    """Whether others than its owner and its group may do anything with a file."""
    return bool(path.stat().st_mode & stat.S_IRWXO)


def write_secret(path: Path, secret: str) -> bool:
    """Write a secret into a new file that its owner alone may read; whether there was none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{secret}\n")
        os.link(temporary, path)  # whoever is first has made it
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


def kept_secret(path: Path) -> str:
    """The secret in a file; it is made if there is no such file."""
    try:
        if not path.exists():
            write_secret(path, new_secret())
    except OSError as error:
        raise ConfigurationError(f"{path}: no secret can be kept there: {error.strerror or error}") from None
    return read_secret(path)


def client_secret_file(name: str) -> Path:
    """Where the secret of a durable client is kept if nobody says where: with the state of the user's programs."""
    given = os.environ.get(_STATE_VARIABLE)
    state = Path(given) if given else Path.home() / ".local" / "state"
    readable = "".join(character if character.isalnum() or character in "-_." else "_" for character in name)
    # Different names have different files, whatever characters they have.
    return state / "tidings" / "secrets" / f"{readable[:100]}-{name.encode().hex()[:80]}"
