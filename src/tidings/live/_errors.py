"""What goes wrong in a live network, split by who is at fault."""

from tidings.errors import ConnectionLostError, DeniedError, TidingsError

__all__ = ["BrokenError", "ConnectionLostError", "DeniedError", "StoreError", "StoreFullError"]


class BrokenError(TidingsError):
    """Raised when a broker has stopped because of its own bug: please report it. What it acknowledged is on disk."""


class StoreError(TidingsError):
    """Raised when a durable store cannot be opened, read or written; nothing more is promised on its behalf."""


class StoreFullError(StoreError):
    """Raised when a durable store is full; nothing was written, and the write may be tried again."""
