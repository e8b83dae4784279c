"""One link: the peer at the other end, the queue, the events under way, and the measured figures."""

__all__: list[str] = []
