"""Where publishers should be, found out by the brokers themselves (paper E)."""

__all__: list[str] = []
