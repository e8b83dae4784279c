"""Pages appear whole or not at all."""

from pathlib import Path

from tidings.errors import InputError

__all__ = ["write_whole"]


def write_whole(place: Path, text: str) -> None:
    """Write a file under a name beside it, and rename it when it is complete."""
    temporary = place.with_name(f"_{place.name}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(place)
    except OSError as error:
        raise InputError(f"{place}: cannot be written: {error.strerror or error}") from None
