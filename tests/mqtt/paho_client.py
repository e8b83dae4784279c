"""A client of the paho library, with what it was sent."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PATIENCE_S = 120.0


class _Paho(paho.Client):
    """paho, but for one fault: when a second attempt to connect fails, it forgets that it has PUBREC for a message, and
    publishes it again. A server that has released its number by then cannot know that."""

    def _messages_reconnect_reset_out(self) -> None:
        for message in self._out_messages.values():
            if message.state == paho.mqtt_ms_resend_pubrel:
                message.state = paho.mqtt_ms_wait_for_pubcomp
        super()._messages_reconnect_reset_out()


class PahoClient:
    """Connected while it is entered; every call waits for its answer."""

    def __init__(
        self, port: int, name: str, *, version: int = 5, expiry_s: int = 0, clean: bool = True, **more: Any
    ) -> None:
        self.messages: list[paho.MQTTMessage] = []
        self.answers: dict[int, list[int]] = {}
        self.reasons: list[int] = []
        self.present: list[bool] = []
        protocol = paho.MQTTv5 if version == 5 else paho.MQTTv311
        kwargs: dict[str, Any] = {} if version == 5 else {"clean_session": clean}
        self.client = _Paho(paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=protocol, **kwargs, **more)
        self.client.on_message = lambda *facts: self.messages.append(facts[2])
        self.client.on_connect = self._connected
        self.client.on_subscribe = self._subscribed
        self._lock = threading.Lock()
        self._port = port
        self._start: dict[str, Any] = {}
        if version == 5:
            self._start = {
                "clean_start": clean,
                "properties": made(PacketTypes.CONNECT, SessionExpiryInterval=expiry_s),
            }

    def _connected(self, *facts: Any) -> None:
        flags, reason = facts[2:4]
        self.reasons.append(reason.value if not isinstance(reason, int) else reason)
        self.present.append(flags.session_present)

    def _subscribed(self, *facts: Any) -> None:
        number, reasons = facts[2:4]
        self.answers[number] = [each.value for each in reasons]

    def __enter__(self) -> "PahoClient":
        self.client.connect("127.0.0.1", self._port, **self._start)
        self.client.loop_start()
        wait(lambda: bool(self.reasons))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def subscribe(self, topic: str, qos: int = 0, **user: str) -> int:
        """Subscribe; the reason code of the answer."""
        properties = (
            made(PacketTypes.SUBSCRIBE, UserProperty=[(name.replace("_", "-"), value) for name, value in user.items()])
            if user
            else None
        )
        _, number = self.client.subscribe(topic, qos, properties=properties)
        assert number is not None
        wait(lambda: number in self.answers)
        return self.answers[number][0]

    def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False, **properties: Any) -> None:
        """Publish, and wait until the broker has it."""
        given = made(PacketTypes.PUBLISH, **properties) if properties else None
        self.client.publish(topic, payload, qos, retain, given).wait_for_publish(PATIENCE_S)

    def payloads(self, count: int) -> list[bytes]:
        """The payloads of so many messages, once they are there."""
        wait(lambda: len(self.messages) >= count)
        return [message.payload for message in self.messages]


def made(kind: int, **values: Any) -> Properties:
    properties = Properties(kind)
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def wait(holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s, "it never came true"
        time.sleep(0.01)
