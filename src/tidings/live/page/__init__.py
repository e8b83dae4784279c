"""The operator's page: the whole overlay as it is now, served by any of its brokers on loopback."""

__all__: list[str] = []
