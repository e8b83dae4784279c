"""An address: a host and a port, as clients and network files write it."""

from typing import Final

import msgspec

__all__ = ["PORTS", "Address"]

PORTS: Final = range(1, 65_536)


class Address(msgspec.Struct, frozen=True):
    """An address to listen at or connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address in a text; ValueError if it is none."""
        host, colon, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"{text!r}: write an IPv6 address in brackets, like [::1]:7001")
        if not colon or not host or not port.isdigit() or int(port) not in PORTS:
            raise ValueError(f"{text!r} is not an address; write it like 127.0.0.1:7001")
        return cls(host, int(port))
