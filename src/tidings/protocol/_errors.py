"""Errors of the protocol, split by who is at fault: the peer who sent, or the application that asks for too much."""

from tidings.errors import InputError, TidingsError

__all__ = ["DeniedError", "FormatError", "PeerError", "RequestError"]


class PeerError(TidingsError):
    """Raised when a peer sends what the protocol does not allow; `code` names the rule that it broke."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DeniedError(TidingsError):
    """Raised when a broker refuses a connection or a request; `code` names the rule."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RequestError(InputError):
    """Raised when an application asks a client for what it cannot do; `code` names the bound or the rule."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class FormatError(InputError):
    """Raised when a durable store is of a later version than this one."""
