"""Sockets: connections, listeners, and the driver that carries out a node's effects."""

__all__: list[str] = []
