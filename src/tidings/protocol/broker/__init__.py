"""A broker: what comes in, what it answers for, what it tells the others, what its clients asked for."""

__all__: list[str] = []
