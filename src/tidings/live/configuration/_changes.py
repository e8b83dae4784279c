"""From one version of a network's file to the next, while its brokers run.

Brokers and links may be added and removed. The strategy of links, brokers' addresses, the drain time, the number of
connections, tokens, rules, the brokers' token, and clients' budgets (for new connections) may change. Everything else
is fixed when a broker starts, and a file that changes it is refused as a whole: a network that applies half of its file
is worse than one that keeps the previous one.
"""

from itertools import combinations
from typing import Any, Final

import msgspec

from tidings.errors import ConfigurationError
from tidings.live.configuration._config import Network

__all__ = ["Change", "change_of"]

_FREE: Final = {
    "network": {"drain_s", "broker_token_file", "strategy", "r"},
    "limits": {"rate_per_s", "traffic_kb_per_s", "matching_s", "reading", "queued_client_size_kb", "connections"},
    "tls": {"revoked"},
}
"""What may change in a section; sections other than brokers, tokens, rules and budgets may not change at all."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The differences: brokers, and links between brokers, by name; and the strategy, if it is another."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    linked: tuple[tuple[str, str], ...] = ()
    unlinked: tuple[tuple[str, str], ...] = ()
    strategy: str | None = None

    def __str__(self) -> str:
        parts = [
            *(f"broker {name} added" for name in self.added),
            *(f"broker {name} removed" for name in self.removed),
            *(f"link {one} - {other} added" for one, other in self.linked),
            *(f"link {one} - {other} removed" for one, other in self.unlinked),
        ]
        parts += [] if self.strategy is None else [f"strategy {self.strategy}"]
        return ", ".join(parts) or "no broker or link is different"


def change_of(before: Network, after: Network) -> Change:
    """The changes that a new file makes; ConfigurationError if brokers would have to be restarted for it."""
    refused = [*_settled(before, after), *_moved(before, after)]
    if refused:
        raise ConfigurationError(
            f"{after.path}: cannot be applied while brokers run: {'; '.join(refused)}. Undo the change, "
            "or restart the brokers"
        )
    links, links_before = _links(after), _links(before)
    return Change(
        added=tuple(sorted(after.brokers.keys() - before.brokers.keys())),
        removed=tuple(sorted(before.brokers.keys() - after.brokers.keys())),
        linked=tuple(sorted(links - links_before)),
        unlinked=tuple(sorted(links_before - links)),
        strategy=None if _strategy(before) == _strategy(after) else after.document.network.strategy,
    )


def _strategy(network: Network) -> tuple[str, float | None]:
    return network.document.network.strategy, network.document.network.r


def _links(network: Network) -> set[tuple[str, str]]:
    pairs = combinations(sorted(network.brokers), 2)
    return {(one, other) for one, other in pairs if other in network.links[one]}


def _settled(before: Network, after: Network) -> list[str]:
    """Changed keys of sections that may not change."""
    found: list[str] = []
    for section in ("network", "relocation", "limits", "tls", "trace", "profiles"):
        old, new = (_fields(getattr(network.document, section)) for network in (before, after))
        names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
        found += [f"[{section}] {_written(name)}" for name in names if name not in _FREE.get(section, ())]
    return found


def _fields(section: Any) -> dict[str, Any]:
    return {} if section is None else {name: getattr(section, name) for name in section.__struct_fields__}


def _written(name: str) -> str:
    """The key as it is written in the file, where the unit is part of the value."""
    for unit in ("_kb", "_s"):
        name = name.removesuffix(unit)
    return name


def _moved(before: Network, after: Network) -> list[str]:
    """Brokers that stay would have to listen elsewhere."""
    return [
        f"{key} of broker {name!r} ({old} to {new})"
        for name in sorted(before.brokers.keys() & after.brokers.keys())
        for key in ("listen", "metrics")
        if (old := getattr(before.brokers[name], key)) != (new := getattr(after.brokers[name], key))
    ]
