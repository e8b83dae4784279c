"""A broker: incoming events, the events it holds, what it reports to other brokers, and the requests of its clients."""

__all__: list[str] = []
