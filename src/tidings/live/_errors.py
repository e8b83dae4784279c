"""What goes wrong in a live network, split by who is at fault."""

from tidings.errors import ConnectionLostError, DeniedError, TidingsError

__all__ = ["BrokenError", "ConnectionLostError", "DeniedError", "StoreError", "StoreFullError"]


class BrokenError(TidingsError):
    """Raised when a broker has stopped because of a bug of its own: please report it. What it promised is on disk."""


class StoreError(TidingsError):
    """Raised when a durable store cannot be opened, read or written; nothing more is promised on its behalf."""


class StoreFullError(StoreError):
    """Raised when a durable store has no room; what was to be written is not written, and may be tried again."""
