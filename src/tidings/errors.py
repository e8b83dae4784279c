"""Every error that Tidings raises on purpose, split by who is at fault; and the one warning.

A message names the thing, the place and the remedy. ``assert`` is for our own bugs; anything below
is for somebody else's: the command line turns these into one clear message and an exit code.
"""

__all__ = [
    "ConfigurationError",
    "ConnectionLostError",
    "DeniedError",
    "EventError",
    "FilterError",
    "FilterWarning",
    "InputError",
    "RequestError",
    "ScenarioError",
    "TidingsError",
]


class TidingsError(Exception):
    """Raised when Tidings cannot continue; the base of every error below."""

    exit_code = 1


class InputError(TidingsError):
    """Raised when data given to Tidings is malformed or out of bounds."""

    exit_code = 2


class FilterError(InputError):
    """Raised when a filter text is malformed; `position` is the offset of the offending character."""

    def __init__(self, message: str, *, text: str = "", position: int = 0) -> None:
        super().__init__(message)
        self.text = text
        self.position = position


class FilterWarning(UserWarning):
    """Given when a filter is well-formed but probably not what was meant; `position` is the offset in doubt."""

    def __init__(self, message: str, *, text: str = "", position: int = 0) -> None:
        super().__init__(message)
        self.text = text
        self.position = position


class EventError(InputError):
    """Raised when an event's attributes cannot be matched: a NaN, an infinity, a value of no known type."""


class RequestError(InputError):
    """Raised when an application asks a client for what it cannot do; `code` names the bound or the rule."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DeniedError(TidingsError):
    """Raised when a broker refuses a connection or a request; `code` names the rule."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConnectionLostError(TidingsError):
    """Raised when a broker cannot be reached, or is lost before it has answered."""


class ConfigurationError(TidingsError):
    """Raised when something is set up in a way that cannot work."""

    exit_code = 2


class ScenarioError(ConfigurationError):
    """Raised when a scenario is wrong; `place` is the file with the line or key to mend."""

    def __init__(self, message: str, *, place: str = "") -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place
