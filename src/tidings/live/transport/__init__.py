"""Sockets: frames, connections, and the driver that carries out what a machine wants."""

__all__: list[str] = []
