"""The client library: asynchronous, and its blocking twin."""

__all__: list[str] = []
