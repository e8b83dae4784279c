"""A client: what it publishes, what it receives, what it asks for, and how it moves to another home."""

__all__: list[str] = []
