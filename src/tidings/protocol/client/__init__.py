"""A client: publishing, receiving, requests, and moving to another home broker."""

__all__: list[str] = []
