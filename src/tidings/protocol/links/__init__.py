"""One connection: who is at the other end, what waits for it, what is under way, and what the link is like."""

__all__: list[str] = []
