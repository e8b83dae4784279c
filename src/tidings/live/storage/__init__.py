"""The durable store and its group commit."""

__all__: list[str] = []
