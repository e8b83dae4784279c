"""Topics and topic filters: validity, matching, and translation into the filter language."""

import hashlib
from typing import Final

import msgspec

from tidings.protocol.wire import MAX_NAME

__all__ = ["Shared", "is_topic", "is_topic_filter", "matches", "name_of", "split_shared", "topic_filter_sql"]

TOPIC: Final = "topic"
"""The attribute that holds the topic."""
_SHARE: Final = "$share"


class Shared(msgspec.Struct, frozen=True):
    """A topic filter and the name of the group that shares it; none if it is not shared."""

    topic_filter: str
    group: str | None = None


def is_topic(topic: str) -> bool:
    """Whether a message may have this topic [MQTT-3.3.2-2], [MQTT-4.7.3-1]."""
    return len(topic) > 0 and "+" not in topic and "#" not in topic and "\0" not in topic and len(topic) <= 0xFFFF


def is_topic_filter(pattern: str) -> bool:
    """Whether `+` and `#` stand alone in their levels, and `#` in the last one [MQTT-4.7.1-1], [MQTT-4.7.1-2]."""
    levels = pattern.split("/")
    return (
        bool(pattern)
        and "\0" not in pattern
        and all(level == "+" or "+" not in level for level in levels)
        and all("#" not in level for level in levels[:-1])
        and (levels[-1] == "#" or "#" not in levels[-1])
    )


def split_shared(pattern: str) -> Shared | None:
    """The parts of a requested subscription; None if it is not a valid topic filter [MQTT-4.8.2-1], [MQTT-4.8.2-2]."""
    if pattern.partition("/")[0] == _SHARE:
        _, _, rest = pattern.partition("/")
        group, slash, rest = rest.partition("/")
        if not group or not slash or "+" in group or "#" in group or not is_topic_filter(rest):
            return None
        return Shared(rest, group)
    return Shared(pattern) if is_topic_filter(pattern) else None


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic satisfies a topic filter; wildcards do not match a first level with `$` [MQTT-4.7.2-1]."""
    if topic.startswith("$") and pattern[0] in "+#":
        return False
    wanted, found = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(found) < len(wanted):
            return False
    elif len(found) != len(wanted):
        return False
    return all(level in ("+", other) for level, other in zip(wanted, found, strict=False))


def topic_filter_sql(pattern: str) -> str:
    """The condition on the attribute `topic` that is true for exactly the topics that the filter matches."""
    quoted = pattern.replace("'", "''")
    return f"{TOPIC} MATCHES '{quoted}'"


def name_of(topic_filter: str) -> str:
    """The name of a subscription at the broker: its topic filter, or a digest if that is too long."""
    if len(topic_filter) <= MAX_NAME:
        return topic_filter
    return f"{topic_filter[:150]}...{hashlib.sha256(topic_filter.encode()).hexdigest()[:32]}"
