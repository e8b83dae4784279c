"""Retained messages: the latest event of each topic that was published with retain, at every broker with a gateway.

Each of these brokers has a durable subscription to retained events, so all have them wherever they were published;
"latest" is by the time of publication, which this broker computes from the age. An empty payload removes the message of
its topic. There are at most `max_messages` with `max_bytes` of payload and attributes: at the bound the oldest are
removed. A broker that is down for longer than the events' lifetime misses events of that time.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tidings.mqtt._mapping import LIFETIME, Message, read_event
from tidings.mqtt._records import RetainedRecord, key, pack
from tidings.mqtt._topics import TOPIC, is_topic, matches

__all__ = ["RETAINED_FILTER", "Retained"]

RETAINED_FILTER: Final = "mqtt_retain = TRUE"
_MS: Final = 1_000_000
_HEAD_BYTES: Final = 100


class Retained:
    """The retained messages of one broker; `store` and `erase` keep them."""

    def __init__(
        self,
        *,
        max_messages: int,
        max_bytes: int,
        store: Callable[[str, bytes], Any],
        erase: Callable[[str], Any],
    ) -> None:
        self.dropped = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._store = store
        self._erase = erase
        self._records: dict[str, RetainedRecord] = {}
        self._removed: dict[str, int] = {}  # by topic, when: a late, older message does not restore it
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def restore(self, record: RetainedRecord) -> None:
        """One that was kept."""
        self._records[record.topic] = record
        self._bytes += _size(record)

    def put(self, attributes: Mapping[str, Any], payload: bytes, age_ns: int, publisher: str, now_ns: int) -> None:
        """A message that is to be retained."""
        topic = attributes.get(TOPIC)
        if not isinstance(topic, str) or not is_topic(topic):
            return
        published_ns = now_ns - age_ns
        known = self._records.get(topic)
        if published_ns <= max(known.published_ns if known is not None else 0, self._removed.get(topic, 0)):
            return
        if known is not None:
            self._remove(topic)
        if not payload and "mqtt_qos" in attributes:  # [MQTT-3.3.1-6]
            self._removed[topic] = published_ns
            while len(self._removed) > self._max_messages:
                del self._removed[next(iter(self._removed))]
            return
        lives_ms = attributes.get(LIFETIME)
        record = RetainedRecord(
            topic=topic,
            attributes=dict(attributes),
            payload=payload,
            published_ns=published_ns,
            publisher=publisher,
            expires_ns=published_ns + lives_ms * _MS if isinstance(lives_ms, int) else None,
        )
        self.restore(record)
        self._store(key("retained", topic), pack(record))
        while self._records and (len(self._records) > self._max_messages or self._bytes > self._max_bytes):
            self.dropped += 1
            self._remove(next(iter(self._records)))

    def matching(self, pattern: str, now_ns: int) -> Iterator[tuple[Message, Mapping[str, Any]]]:
        """The messages for a new subscription, with their attributes; those that have expired are removed."""
        if "+" in pattern or "#" in pattern:
            found = [record for topic, record in self._records.items() if matches(pattern, topic)]
        else:
            found = [self._records[pattern]] if pattern in self._records else []
        for record in found:
            if record.expires_ns is not None and record.expires_ns <= now_ns:
                self._remove(record.topic)
                continue
            message = read_event(record.attributes, record.payload, record.published_ns)
            if message is not None:
                yield message, record.attributes

    def _remove(self, topic: str) -> None:
        self._bytes -= _size(self._records.pop(topic))
        self._erase(key("retained", topic))


def _size(record: RetainedRecord) -> int:
    return _HEAD_BYTES + len(record.topic) + len(record.payload) + 32 * len(record.attributes)
