"""A broker: what comes in, what it holds, what it tells the others, what its clients asked for."""

__all__: list[str] = []
