"""Better homes for publishers, found by the brokers themselves (paper E)."""

__all__: list[str] = []
