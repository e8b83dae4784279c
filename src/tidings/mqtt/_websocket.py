"""The server's end of a WebSocket that carries MQTT, without I/O, on wsproto.

MQTT packets travel in binary messages and need not be aligned with them; the subprotocol is `mqtt`, and a client that
does not offer it is refused. wsproto is loaded when the first WebSocket is made.
"""

from typing import TYPE_CHECKING, Final

from tidings.errors import ConfigurationError

if TYPE_CHECKING:
    from wsproto import WSConnection
    from wsproto.events import Event, Request

__all__ = ["WebSocket"]

_SUBPROTOCOL: Final = "mqtt"
_UNACCEPTABLE: Final = 1003


class WebSocket:
    """One WebSocket."""

    def __init__(self) -> None:
        try:
            import wsproto
        except ImportError:
            raise ConfigurationError("MQTT over WebSocket needs wsproto: pip install 'tidings[websocket]'") from None
        self.is_open = False
        self.is_over = False
        self._connection: WSConnection = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        self._reply = b""

    def feed(self, data: bytes) -> bytes:
        """Bytes of the socket as bytes of MQTT; `take_reply` has what to answer."""
        from wsproto.utilities import ProtocolError

        if self.is_over:
            return b""
        payload = bytearray()
        try:
            self._connection.receive_data(data)
            for event in self._connection.events():
                payload += self._on_event(event)
        except ProtocolError:
            self.is_over = True
        return bytes(payload)

    def _on_event(self, event: "Event") -> bytes:
        from wsproto import events

        match event:
            case events.Request():
                self._accept(event)
            case events.BytesMessage():
                return bytes(event.data)
            case events.TextMessage():  # [MQTT-6.0.0-1]
                self._send(events.CloseConnection(_UNACCEPTABLE, "MQTT uses binary messages"))
                self.is_over = True
            case events.Ping():
                self._send(event.response())
            case events.CloseConnection():
                self._send(event.response())
                self.is_over = True
        return b""

    def wrap(self, data: bytes) -> bytes:
        """Bytes of MQTT as bytes for the socket."""
        from wsproto.events import BytesMessage

        return self._connection.send(BytesMessage(data))

    def take_reply(self) -> bytes:
        """What the WebSocket itself has to send."""
        reply, self._reply = self._reply, b""
        return reply

    def end(self) -> None:
        """Close it from this side."""
        from wsproto.events import CloseConnection

        if self.is_open and not self.is_over:
            self._send(CloseConnection(1000))
        self.is_over = True

    def _accept(self, request: "Request") -> None:
        from wsproto.events import AcceptConnection, RejectConnection

        if _SUBPROTOCOL not in request.subprotocols:  # [MQTT-6.0.0-3]
            self._send(RejectConnection(status_code=400))
            self.is_over = True
            return
        self._send(AcceptConnection(subprotocol=_SUBPROTOCOL))
        self.is_open = True

    def _send(self, event: "Event") -> None:
        self._reply += self._connection.send(event)
