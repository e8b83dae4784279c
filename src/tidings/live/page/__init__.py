"""The operator's page: the present state of the whole overlay, served by any of its brokers on loopback."""

__all__: list[str] = []
